// Package directory knows, at the leader of a term, which caches may have which
// keys, and says whom a write has to wait for (docs/coherence.md).
//
// A lease holds ranges, in the replicated state; its holder's cache may have keys
// that lie within. What a cache has of them only the leader knows, so a new leader
// takes each cache for wide: it may have all that its lease holds, until it has said
// what it has and that it knows this leader.
//
// A write that touches what a cache may have waits until the cache has acknowledged
// that it dropped it, or its lease has passed its expiry. From when the write came
// until its outcome is known what it touches is pending: nobody may cache it.
//
// A lease that is revoked, or gets another holder, does so at once. What it held is an orphan
// then: its cache is told to drop everything, and writes wait for it as before.
//
// Why that keeps C1, a cached read is never older than a write that was acknowledged
// before it began: a copy is used only while its lease has not passed its expiry, by
// any leader's clock. As long as it may be used, the leader either knows of it or
// takes the cache for wide. docs/coherence.md has the whole argument.
//
// The package is pure: no goroutine, no lock, no I/O; instants are arguments. Its
// caller, the replica, owns a Directory and calls it from one goroutine. What it
// returns is in a fixed order, never in that of a map.
package directory
