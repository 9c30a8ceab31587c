// Package cache reads keys at the speed of memory, and never sees an older value than the
// last write that was acknowledged before the read began.
//
// A [Cache] holds ranges of keys with a lease. It keeps what it has read of them, also that
// there is no such key, and answers from memory as long as the lease is valid. A write to
// such a key, over whichever API, waits until the cache has dropped it, or its lease has
// ended: a round trip if all is well, and what is left of the lease's TTL if the program that
// has the cache is gone. No other client has to know of caches.
//
// That costs writers. Where a little staleness does no harm a [Follower] is the better
// choice: a watch feeds it, and nobody waits for it.
//
// docs/caches.md tells what is promised, what it costs, and when not to use it.
package cache
