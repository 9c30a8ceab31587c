// Package directory records, at the leader of a term, which caches may have which keys, and for
// which caches a write must wait (docs/caches.md).
//
// A lease holds ranges in the replicated state. The cache of its holder may have keys within them.
// Only the leader knows which keys a cache has. A new leader therefore treats every cache as wide,
// which means that it may have everything its lease holds. A cache stops being wide when it has
// reported to the new leader what it has, and has acknowledged this leader.
//
// A write to keys that a cache may have waits until the cache has acknowledged dropping them, or
// until the cache's lease has expired. From the arrival of the write until its outcome is known,
// its keys are pending: no cache may be filled with them.
//
// When a lease is revoked or changes its holder, which happens at once, what it held becomes an
// orphan. The orphan's cache is told to drop everything, and writes wait for it as before.
//
// This maintains C1: a cached read is never older than a write that was acknowledged before the
// read began. A copy is used only until its lease expires by any leader's clock. Until then, the
// leader either knows of the copy or treats the cache as wide. docs/caches.md has the whole
// argument.
//
// The package is pure: it has no goroutine, lock or I/O, and takes instants as arguments. The
// replica owns a Directory and calls it from one goroutine. Results are in a fixed order, never in
// map order.
package directory
