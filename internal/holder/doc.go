// Package holder is the holder's side of leases. It tracks how long each lease is valid, when to
// renew it next, and how it ended.
//
// A lease is valid until sent + TTL*(1-drift) - margin. Here, sent is the time just before the
// holder sent the grant or renewal that was acknowledged. So the validity ends before the lessor
// may end the lease (docs/leases.md). Other clients count from the time of receipt, which is too
// long (T2).
//
// After that, the lease is in jeopardy for a grace period chosen by the program. The default is
// none. The program must not rely on the lease during that period, but a renewal with its token may
// still find it alive. After the grace period, the lease has ended permanently. Later answers
// change nothing, and it is not replaced by another lease (T25, T28).
//
// Set is pure: it takes the time as an argument, uses no random numbers, starts no goroutines and
// does no I/O. Package client drives it with real clocks and streams, and the simulator with
// virtual ones.
package holder
