// Package directory knows, at the leader of a term, which caches may have which keys, and says
// for which caches a write must wait (docs/caches.md).
//
// A lease holds ranges, in the replicated state; the cache of its holder may have keys within
// them. Only the leader knows which keys a cache has. So a new leader takes each cache for wide,
// as if it had everything that its lease holds, until the cache has said what it has and that it
// knows this leader.
//
// A write to keys that a cache may have waits until the cache has acknowledged that it dropped
// them, or its lease has passed its expiry. From the arrival of the write until its outcome is
// known, its keys are pending: no cache may keep them.
//
// A lease is revoked, or gets another holder, at once. What it held becomes an orphan: its cache
// is told to drop everything, and writes wait for it as before.
//
// Why that keeps C1, a cached read is never older than a write that was acknowledged
// before it began: a copy is used only while its lease has not passed its expiry, by
// any leader's clock. As long as it may be used, the leader either knows of it or
// takes the cache for wide. docs/caches.md has the whole argument.
//
// The package is pure: no goroutine, no lock, no I/O; instants are arguments. Its
// caller, the replica, owns a Directory and calls it from one goroutine. What it
// returns is in a fixed order, never in that of a map.
package directory
