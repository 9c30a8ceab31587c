// Package directory tracks, on the leader of a term, which caches may have which keys, and which
// caches a write must wait for (docs/caches.md).
//
// In the replicated state, a lease holds ranges. The cache of its holder may have keys within those
// ranges. Only the leader knows which keys a cache has. So a new leader treats every cache as wide,
// which means that the cache may have everything its lease holds. A cache stops being wide once it
// has reported its contents to the new leader and has acknowledged this leader.
//
// A write to keys that a cache may have waits until the cache has acknowledged dropping them, or
// until the lease of the cache has expired. From the arrival of the write until its outcome is
// known, its keys are pending, and no cache may be filled with them.
//
// A revocation or a change of holder takes effect immediately, and the ranges that the lease held
// become an orphan. The leader invalidates everything in the orphan's cache, and writes wait for
// that cache as before.
//
// This maintains C1: a cached read is never older than a write that was acknowledged before the
// read began. A copy is used only until its lease expires, as measured by any leader's clock. Until
// then, the leader either has a record of the copy or treats the cache as wide. docs/caches.md has
// the complete argument.
//
// The package is pure: it starts no goroutines, takes no locks, does no I/O, and takes instants as
// arguments. The replica owns a Directory and calls it from one goroutine. The order of results is
// fixed and never depends on map order.
package directory
