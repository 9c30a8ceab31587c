// Package pool leases the IDs or addresses of a set, each to one holder at a time.
//
// What is promised:
//
//   - No two programs have a valid [Loan] of one ID, as long as clocks run at about the same rate.
//     A valid one is one whose Err is nil: see package client.
//   - Tokens rise from holder to holder of an ID.
//   - Wherever a process stops, its lease ends after the TTL, and the ID is free, at once or after
//     the quarantine that the pool has. There is nothing to repair.
//
// What is not promised:
//
//   - That an ID comes back to the owner that had it. It is tried.
//   - That somebody who revokes the lease of a loan by hand does no harm. The holder finds out at
//     its next renewal; until then there may be two.
package pool
