// Package replica is one member's part in the consensus: it drives the Raft
// library and applies its log to the state machine.
//
// A Replica is a machine of inputs and outputs. Clock readings, ticks,
// messages, proposals, reads and renewals go in; what to save, what to send,
// what was answered and what changed comes out of Take. It starts no
// goroutine, reads no clock and does no I/O, so that the same code runs under
// a real member's loop and, in virtual time, under a simulator.
//
// # Parts
//
// The Replica joins parts that do not know each other: the driver of the Raft library, the entries
// in the log (inflight), the relay to another leader, links and failover, and, only while this
// member leads, a leadership with its gate, queue, confirm rounds, expirer, remotes and changes of
// the membership. docs/architecture.md has the list, and the ways through them.
//
// # What leaves, and when
//
// A proposal is answered when its entry has been applied here. Everything
// that is said without an entry (a read, a renewal) leaves only after a
// confirm round: a quorum has confirmed, after the promise was made, that this
// member still leads, and the state is as new as that round. One round serves
// all that wait. A sole voter is its own quorum, by the same path.
//
// # Leases
//
// The leader's tracker runs from the moment the leader has applied an entry
// of its own term (promotion) until it stops leading. Expiry is a command like
// any other, fenced by the term (fsm.Expire). Renewals ask for a confirm round, not for
// an entry; those that reach another member are relayed to the leader in batches.
//
// # Caches
//
// A command that touches what a cache may have waits at the gate of the leader
// until package directory says that nobody has it any more.
//
// # Contract
//
// One goroutine owns a Replica. After every input, or several, it calls Take and
// carries out what it is given: an append is saved and synced before its answers
// leave, messages may be lost, and a client that is answered may read at once, so the new
// view is published first. What waits for the disk, the network or a reader is not
// the replica's affair.
package replica
