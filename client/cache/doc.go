// Package cache reads keys from memory, and never returns a value older than the last write
// acknowledged before the read began.
//
// A [Cache] holds ranges of keys with a lease. It keeps the keys that it has read, including
// missing ones, and answers from memory while the lease is valid. A write to such a key, over any
// API, waits until the cache has dropped the key or its lease has ended. That usually takes one
// round trip, but the rest of the lease's TTL if the caching program has died. Other clients need
// not be aware of caches.
//
// So a cache slows writers down. Where slightly stale answers are acceptable, a [Follower] is the
// better choice: it is fed by a watch, and no write waits for it.
//
// See docs/caches.md for the guarantees, the costs, and when not to use a cache.
package cache
