// Package copies is the holder's side of a coherent cache: which copies it has, which ranges it
// is reading, what it must drop and acknowledge, and what it evicts to make room.
//
// The leader's side, which decides for which caches a write waits, is package directory. Three
// rules of this side keep C1 (and T20):
//
//   - An invalidation drops the copies that it names, and marks such ranges that are being read
//     as not to be kept. Only then is it acknowledged.
//   - An answer is kept only if it is of the term in which the cache was last opened. So a late
//     answer of an earlier leader, of which the current leader does not know, is not kept.
//   - The cache tells the leader some time later which copies it has evicted, but never of a key
//     that it has asked for again meanwhile.
//
// The package does not know whether the lease is valid: a reader first looks for a copy, and then
// checks that the lease is still valid.
//
// A Set is pure: no clock, no goroutine, no I/O. Package cache and the simulator drive it.
package copies
