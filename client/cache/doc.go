// Package cache reads keys from memory, and never returns an older value than the last write that
// was acknowledged before the read began.
//
// A [Cache] holds ranges of keys with a lease. It keeps what it has read of them, missing keys
// too, and answers from memory as long as the lease is valid. A write to such a key, over any
// API, waits until the cache has dropped the key, or until the lease of the cache has ended. That
// is usually one round trip; if the program with the cache has died, it is the rest of the
// lease's TTL. Other clients need not know of caches.
//
// So a cache slows writers. Where a little staleness does no harm, a [Follower] is the better
// choice: a watch feeds it, and no write waits for it.
//
// docs/caches.md tells what is promised, what it costs, and when not to use it.
package cache
