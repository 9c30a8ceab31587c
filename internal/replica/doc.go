// Package replica is one member's part of the consensus: it drives the Raft library and applies the
// log to the state machine.
//
// A Replica is a machine of inputs and outputs. Its inputs are clock readings, ticks, messages,
// proposals, reads and renewals; Take returns the entries to save, the messages to send, the
// answers and the changes. It starts no goroutine, reads no clock and does no I/O, so that the same
// code runs under a real member's loop and, in virtual time, under a simulator.
//
// # Parts
//
// [Replica.Take] joins parts that do not refer to each other. Each part takes values, and returns
// values or appends to the output:
//
//   - The driver (driver.go, vet.go, backlog.go) drives the Raft library. It validates the inputs;
//     committed entries wait until a step has time for them.
//   - inflight has this member's entries in the log whose outcome is not known yet.
//   - The relay (relay.go, forward.go, asks.go) sends the requests of this member's clients to
//     another leader: commands by number; renewals, reads and caches in rounds. It
//     renews leases in groups (package holder, Agent).
//   - links and failover track how well each member is reached, and decide when to campaign after
//     the leader's death.
//
// Only while this member leads does it have a leadership (leader.go), with these parts:
//
//   - The gate (gate.go, effects.go, single.go) delays changes of keys that caches may have
//     (package directory).
//   - The queue (queue.go, package delay) holds admitted commands, applies the commit delay, and
//     makes the entries.
//   - Confirm rounds (read.go, package confirm): reads and promises wait for a quorum's
//     confirmation that began after them.
//   - Renewals (renew.go, renewals.go, groups.go) are promises to holders, one by one or together.
//   - The expirer (expire.go, checkpoint.go) decides which leases expire in the next entry, and
//     whose remaining time is replicated.
//   - remotes are the members that forward to this leader, with what is ready for each.
//   - changes and health (members.go, safety.go) make changes of the membership, one at a time, if
//     they are safe for the cluster.
//
// Values that several parts read are in local.go; only the Replica changes them.
// docs/architecture.md draws the paths through the parts.
//
// # What leaves, and when
//
// A proposal is answered when its entry has been applied here. An answer without an entry (to a
// read or renewal) leaves only after a confirm round: after the promise was made, a quorum
// confirmed that this member still leads, and the state is as new as that round. One round confirms
// all waiting answers. A single voter is its own quorum, and takes the same path.
//
// # Leases
//
// The leader's tracker runs from when the leader has applied an entry of its own term (promotion)
// until it stops leading. Expiry is a command like any other, fenced by the term (fsm.Expire). A
// renewal needs a confirm round, not an entry. Another member renews the leases of its clients in
// groups of the leader.
//
// # Caches
//
// A command that changes keys that a cache may have waits at the leader's gate until package
// directory reports that no cache has them.
//
// # Contract
//
// One goroutine owns a Replica. After one or more inputs it calls Take and carries out the output:
// it saves and syncs an append before its answers leave, and publishes the new view before it
// answers clients, because they may read at once. Messages may be lost. Slow disks, networks and
// readers do not affect the replica.
package replica
