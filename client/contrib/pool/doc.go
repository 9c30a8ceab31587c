// Package pool leases the IDs or addresses of a set, each to one holder at a time.
//
// Guarantees:
//
//   - At most one program has a valid [Loan] of an ID, provided that clocks run at about the same
//     rate. A Loan is valid while its Err is nil: see package client.
//   - Tokens increase from holder to holder of an ID.
//   - If a process stops at any point, its lease ends after the TTL, and the ID becomes free, at
//     once or after the quarantine of the pool. There is nothing to repair.
//
// Limitations:
//
//   - An owner does not always get the ID that it had before: the pool only prefers it.
//   - Revoking the lease of a loan by hand is not safe. The holder finds out at its next renewal;
//     until then, there may be two holders.
package pool
