// Package copies is the holder's side of a coherent cache. It tracks the cache's copies and the
// ranges that the cache is reading. It drops ranges that the leader invalidates and acknowledges
// the invalidations. It also evicts copies to stay within its limits.
//
// Package directory is the leader's side, which decides which caches a write waits for. Three rules
// on the holder's side uphold C1 (and T20):
//
//   - An invalidation drops the copies in its ranges and spoils the reads in flight that overlap
//     them. Only then is it acknowledged.
//   - An answer is kept only if it belongs to the term in which the cache was last opened. A late
//     answer from an earlier leader, unknown to the current one, is discarded.
//   - Evictions are reported to the leader lazily. An eviction is never reported if the key has
//     been requested again in the meantime.
//
// The package does not check the lease. A reader looks up a copy first, and then checks that the
// lease is still valid.
//
// A Set is pure: it reads no clock, starts no goroutines and does no I/O. Package cache and the
// simulator drive it.
package copies
