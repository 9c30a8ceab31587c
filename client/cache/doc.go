// Package cache reads keys from memory, and never returns a value older than the last write
// acknowledged before the read began.
//
// A [Cache] has a lease that holds ranges of keys. It keeps the keys it has read, including missing
// ones, and answers from memory while the lease is valid. A write to a cached key, over any API,
// waits until the cache has dropped the key or its lease has ended. This usually takes one round
// trip. If the caching program has died, the write waits for the rest of the lease's TTL. Other
// clients do not need to be aware of caches.
//
// So a cache slows writers down. If slightly stale answers are acceptable, a [Follower] is the
// better choice: it is updated by a watch, and writes do not wait for it.
//
// See docs/caches.md for the guarantees, the costs, and when not to use a cache.
package cache
