// Package nodes elects one primary among a set of nodes and tells which nodes are alive. The
// cluster issues the leases; the renewals of a node are its heartbeats.
//
// [Set.List] and [Set.Watch] tell which nodes are alive, suspect or down, and which is the
// primary. [Set.Switch] orders another primary. A [Node] knows until when it counts as alive, and
// has a [Primacy] while it is the primary.
//
// What is promised:
//
//   - At most one node has a valid Primacy, as long as clocks run at about the same rate. A
//     Primacy is valid while its Err is nil: see package client.
//   - Tokens rise from primary to primary.
//   - If a process stops at any point, its leases end after their TTL and remove what was half
//     done. There is nothing to repair.
//   - Only Node.Lead starts a goroutine, while it runs. Loops wait for random times between
//     tries.
//
// What is not promised: that revoking the lease of a primary by hand is safe. The primary finds
// out at its next renewal; until then there may be two primaries.
package nodes
