// Package pool leases IDs or addresses from a fixed set, each to one holder at a time.
//
// Guarantees:
//
//   - At most one program has a valid [Loan] of an ID, as long as clocks run at about the same
//     rate. A Loan is valid while its Err is nil. See package client.
//   - Tokens increase from one holder of an ID to the next.
//   - If a process stops at any point, its lease ends after the TTL. The ID then becomes free,
//     either immediately or after the quarantine of the pool. No repair is needed.
//
// Limitations:
//
//   - The pool prefers to give an owner its previous ID, but cannot guarantee it.
//   - Revoking a loan's lease manually is unsafe. The holder detects this only at its next renewal,
//     so until then there may be two holders.
package pool
