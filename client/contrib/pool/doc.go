// Package pool leases the IDs or addresses of a set, each to one holder at a time.
//
// What is promised:
//
//   - At most one program has a valid [Loan] of an ID, as long as clocks run at about the same
//     rate. A Loan is valid while its Err is nil: see package client.
//   - Tokens rise from holder to holder of an ID.
//   - If a process stops at any point, its lease ends after the TTL, and the ID is free, at once
//     or after the quarantine of the pool. There is nothing to repair.
//
// What is not promised:
//
//   - That an owner gets the ID again that it had before. The pool tries.
//   - That revoking the lease of a loan by hand is safe. The holder finds out at its next
//     renewal; until then there may be two holders.
package pool
