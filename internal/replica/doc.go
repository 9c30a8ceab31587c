// Package replica is one member's part in the consensus: it drives the Raft
// library and applies its log to the state machine.
//
// A Replica is a machine of inputs and outputs. Its inputs are clock readings, ticks, messages,
// proposals, reads and renewals; Take returns what to save, what to send, what was answered and
// what changed. It starts no goroutine, reads no clock and does no I/O, so that the same code
// runs under a real member's loop and, in virtual time, under a simulator.
//
// # Parts
//
// [Replica.Take] joins parts that do not know each other. Each part takes values, and returns
// values or appends to the output:
//
//   - The driver (driver.go, vet.go, backlog.go) drives the Raft library. It vets the inputs;
//     committed entries wait until a step has time for them.
//   - inflight has this member's entries in the log, until their outcome is known.
//   - The relay (relay.go, forward.go, asks.go) has the requests of this member's clients to
//     another leader: commands by number; renewals, reads and caches by round.
//   - links and failover: how well each member is reached; when to campaign after the leader's
//     death.
//
// Only while this member leads there is a leadership (leader.go), which has
//
//   - the gate (gate.go, effects.go, single.go), which delays changes of keys that caches may
//     have (package directory);
//   - the queue (queue.go, package delay): admitted commands, the commit delay, and the entries
//     made of them;
//   - confirm rounds (read.go, package confirm): reads and promises wait for a quorum's
//     confirmation that began after them;
//   - renewals (renew.go, renewals.go): promises to holders, one by one or as a batch;
//   - the expirer (expire.go, checkpoint.go): which leases expire in the next entry, and whose
//     remaining time is replicated;
//   - remotes: the members that forward to this leader, and what is ready for each;
//   - changes and health (members.go, health.go): changes of the membership, one at a time, if the
//     cluster can afford them.
//
// What several parts read is in local.go; only the Replica changes it. docs/architecture.md draws
// the ways through the parts.
//
// # What leaves, and when
//
// A proposal is answered when its entry has been applied here. An answer without an entry (to a
// read or renewal) leaves only after a confirm round: a quorum has confirmed, after the promise
// was made, that this member still leads, and the state is as new as that round. One round serves
// all waiting answers. A single voter is its own quorum, by the same path.
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
// A command that changes keys which a cache may have waits at the leader's gate until package
// directory says that no cache has them any more.
//
// # Contract
//
// One goroutine owns a Replica. After one or more inputs it calls Take and carries out the
// output: it saves and syncs an append before its answers leave, and publishes the new view
// before it answers clients, because they may read at once. Messages may be lost. The replica
// does not care what waits for the disk, the network or a reader.
package replica
