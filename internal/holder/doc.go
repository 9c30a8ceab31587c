// Package holder is the holder's side of leases: until when each is valid, when it
// is to be renewed next, and what became of it.
//
// A holder counts from the moment before it sent the grant or renewal that was
// acknowledged, and stops at valid until = sent + TTL*(1-drift) - margin, which comes
// before the lessor may end the lease (docs/leases.md; trap T2: others count from the
// receipt, and believe too long). Past valid until, a lease is in jeopardy for the
// grace that its program chose, by default none: it must not be relied on, but a
// renewal with its token may still find it alive. Then it has ended for ever: what
// is heard of it later changes nothing, and nobody gets another one in its place
// (T25, T28).
//
// Set is pure: it takes the time as an argument, draws no random numbers, starts no
// goroutine and does no I/O. Package client drives it with real clocks and streams,
// the simulator with virtual ones.
package holder
