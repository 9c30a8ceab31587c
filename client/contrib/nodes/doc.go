// Package nodes elects a primary among a set of nodes, and reports which nodes are alive. The
// cluster issues the leases; a node's renewals are its heartbeats.
//
// [Set.List] and [Set.Watch] report which nodes are alive, suspect or down, and which one is the
// primary. [Set.Switch] makes another node the primary. A [Node] knows how long it counts as alive,
// and has a [Primacy] while it is the primary.
//
// Guarantees:
//
//   - At most one node has a valid Primacy, provided that clocks run at about the same rate. A
//     Primacy is valid while its Err is nil: see package client.
//   - Tokens increase from primary to primary.
//   - If a process stops at any point, its leases end after their TTL, and unfinished work ends
//     with them. There is nothing to repair.
//   - Only Node.Lead starts a goroutine, which ends when Lead returns. Retries are randomly
//     delayed.
//
// Limitation: revoking a primary's lease by hand is not safe. The primary finds out at its next
// renewal; until then, there may be two primaries.
package nodes
