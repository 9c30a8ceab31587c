// Package replica implements one member's part of the consensus. It drives the Raft library and
// applies the log to the state machine.
//
// A Replica is a state machine with inputs and outputs. Its inputs are clock readings, ticks,
// messages, proposals, reads and renewals. Take returns its outputs: entries to save, messages to
// send, answers, and changes to the store. A Replica starts no goroutine, reads no clock and does
// no I/O, so the same code runs in a real member's loop and, in virtual time, in a simulator.
//
// # Parts
//
// [Replica.Take] connects parts that do not refer to each other. Each part takes values, and
// returns values or appends to the output:
//
//   - The driver (driver.go, vet.go, backlog.go) drives the Raft library and validates its inputs.
//     Committed entries wait until a step has time for them.
//   - inflight holds this member's entries in the log whose outcome is not known yet.
//   - The relay (relay.go, forward.go, asks.go) sends requests from this member's clients to the
//     leader when another member leads. Commands are numbered. Renewals, reads and cache messages
//     are sent in rounds. The relay renews leases in groups (package holder, Agent).
//   - links and failover track how well each member can be reached, and decide when to campaign
//     after the leader dies.
//
// A member holds leadership state (leader.go) only while it leads. It consists of these parts:
//
//   - The gate (gate.go, effects.go, single.go) delays changes to keys that may be cached
//     (package directory).
//   - The queue (queue.go, commit_delay.go) holds admitted commands, applies the commit delay, and
//     makes the entries.
//   - Confirm rounds (confirm.go, read.go) make every read and promise wait until a quorum
//     has confirmed the leader in a round that began later.
//   - Renewals (renew.go, renewals.go, groups.go) are promises to holders, made individually or in
//     batches.
//   - The expirer (expire.go, checkpoint.go) decides which leases expire in the next entry, and
//     for which leases the remaining time is replicated.
//   - remotes holds the members that forward requests to this leader, and the replies that are
//     ready for them.
//   - changes and health (members.go, membership_safety.go) change the membership one step at a
//     time, if the step is safe for the cluster.
//
// Values that several parts read are in local.go. Only the Replica changes them.
// docs/architecture.md shows the paths through the parts.
//
// # When answers are sent
//
// A proposal is answered when its entry has been applied on this member. An answer that needs no
// entry, such as the answer to a read or a renewal, is sent only after a confirm round. In that
// round, a quorum confirms that this member still leads. The round begins after the promise was
// made, and the answer reflects a state at least as new as the round. One round confirms all
// waiting answers. A single voter is its own quorum and takes the same path.
//
// # Leases
//
// The leader is promoted when it has applied an entry of its own term. Its tracker runs from then
// until the member stops leading. Expiry is an ordinary command that is fenced by the term
// (fsm.Expire). A renewal needs a confirm round but no entry. Other members renew the leases of
// their clients in groups that the leader keeps.
//
// # Caches
//
// A command that changes cached keys waits at the leader's gate until package directory reports
// that no cache has them.
//
// # Contract
//
// One goroutine owns a Replica. After one or more inputs, it calls Take and carries out the output.
// It saves and syncs an append before sending the answers that depend on it. It publishes the new
// view before it answers clients, because they may read immediately. Messages may be lost. Slow
// disks, networks and readers do not block the replica.
package replica
