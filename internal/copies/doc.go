// Package copies is the holder's side of a coherent cache: what it has, what it is reading
// just now, what it has to drop and to acknowledge, and what it gives up to make room.
//
// The other side, which decides whom a write waits for, is package directory. Three rules
// of this side make the two right together (C1, T20):
//
//   - An invalidation drops what it names, and also marks what is being read just now
//     as not to be kept; only then it is acknowledged.
//   - What was read is kept only if it was answered in the term in which the cache was
//     opened last. A late answer of an earlier leader, which does not count for the one
//     that leads now, is not.
//   - What the cache drops by itself it tells some time later, and never of a key that it
//     has asked for again meanwhile.
//
// Whether the lease is valid is not known here: a reader looks whether there is a copy and,
// after that, whether the lease is still valid.
//
// A Set is pure: no clock, no goroutine, no I/O. Package cache drives it, and the simulator.
package copies
