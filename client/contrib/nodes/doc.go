// Package nodes elects a primary among a set of nodes, and reports which nodes are alive. The
// cluster grants the leases; a node's renewals are its heartbeats.
//
// [Set.List] and [Set.Watch] report which nodes are alive, suspect or down, and which node is the
// primary. [Set.Switch] makes another node the primary. A [Node] reports how long it counts as
// alive, and has a [Primacy] while it is the primary.
//
// Guarantees:
//
//   - At most one node has a valid Primacy, as long as clocks run at about the same rate. A
//     Primacy is valid while its Err is nil. See package client.
//   - Tokens increase from primary to primary.
//   - If a process stops at any point, its leases end after their TTL, and any unfinished work ends
//     with them. No repair is needed.
//   - Only Node.Lead starts a goroutine, which ends when Lead returns. Retries are delayed
//     randomly.
//
// Limitation: revoking a primary's lease by hand is not safe. The primary detects this only at its
// next renewal, so until then there may be two primaries.
package nodes
