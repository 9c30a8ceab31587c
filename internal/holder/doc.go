// Package holder is the holder's side of leases. It tracks how long each is valid, when to renew it
// next, and how it ended.
//
// A lease is valid until sent + TTL*(1-drift) - margin, where sent is the moment just before the
// holder sent the acknowledged grant or renewal. That is before the lessor may end the lease
// (docs/leases.md; trap T2: other clients count from the receipt, which is too long). After that
// the lease is in jeopardy for the grace that its program chose, by default none: it must not be
// relied on, but a renewal with its token may still find it alive. After that it has ended forever:
// later answers change nothing, and it is not replaced by another lease (T25, T28).
//
// Set is pure: it takes the time as an argument, draws no random numbers, starts no goroutine and
// does no I/O. Package client drives it with real clocks and streams, the simulator with virtual
// ones.
package holder
