// Package directory records, at the leader of a term, which caches may have which keys, and for
// which caches a write must wait (docs/caches.md).
//
// A lease holds ranges in the replicated state. The cache of its holder may have keys within them.
// Only the leader knows which keys a cache has. A new leader therefore treats every cache as wide,
// which means that it may have everything its lease holds. A cache stops being wide when it has
// reported its contents to the new leader, and has acknowledged this leader.
//
// A write to keys that a cache may have waits until the cache has acknowledged dropping them, or
// until the cache's lease has expired. From the arrival of the write until its outcome is known,
// its keys are pending: no cache may be filled with them.
//
// A revocation or a change of the holder takes effect at once, and what the lease held becomes an
// orphan. The leader invalidates everything in the orphan's cache, and writes wait for it as
// before.
//
// This maintains C1: a cached read is never older than a write that was acknowledged before the
// read began. A copy is used only until its lease expires by any leader's clock. Until then, the
// leader either has a record of the copy or treats the cache as wide. docs/caches.md has the whole
// argument.
//
// The package is pure: it has no goroutine, lock or I/O, and takes instants as arguments. The
// replica owns a Directory and calls it from one goroutine. Results are in a fixed order, never in
// map order.
package directory
