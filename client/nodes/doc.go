// Package nodes is the classical primary and its secondaries: one issuer of leases, the cluster,
// and nodes whose heartbeats are renewals.
//
// The issuer's side, [Set.List] and [Set.Watch], says which nodes are alive, suspect or down and
// which is the primary. [Set.Switch] orders another primary. A [Node] knows until when it counts
// as alive, and has a [Primacy] while it is the primary.
//
// What is promised:
//
//   - No two nodes have a valid Primacy, as long as clocks run at about the same rate. A valid one
//     is one whose Err is nil: see package client.
//   - Tokens rise from primary to primary.
//   - Wherever a process stops, its leases end after their TTL and take with them what was half
//     done. There is nothing to repair.
//   - Nothing here starts a goroutine, but Node.Lead while it runs. Loops wait between tries, at
//     random.
//
// What is not promised: that somebody who revokes the lease of a primary by hand does no harm. The
// primary finds out at its next renewal; until then there may be two.
package nodes
