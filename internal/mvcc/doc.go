// Package mvcc is a multi-version key-value store in memory, with etcd's data model: every change
// has a revision, and the store can be read as it was at any revision since the last compaction.
//
// A [Store] belongs to one goroutine. Other goroutines get a [View], an immutable value that takes
// O(1) to create: readers, watchers and the snapshot writer can keep one indefinitely while the
// owner continues to write. Later changes of the store, even a compaction, do not change a View.
//
// Every version of a key is an immutable record. Two structures find them:
//
//   - The history holds all records in the order of their revisions, in chunks that are only ever
//     appended to, or replaced as a whole. Events, hashes and snapshots read it.
//   - Two copy-on-write B-trees hold an entry for each key, one for live keys and one for those
//     that were deleted since the compaction, so that a range read at the current revision never
//     steps over deleted keys. An entry has the newest record and the older ones.
//
// A view of revision r takes from each entry the newest record at or before r, so an overwrite
// changes no tree: it appends a record to its entry, which older views skip. Only creating and
// deleting a key copies a path of a tree.
//
// Compaction is logical and immediate: it raises one number, which every read checks. Scrub frees
// the memory in small steps whenever the owner is idle. It never removes a record from an entry or
// chunk that a view may use, but replaces the entry or chunk; the garbage collector frees the old
// one with the last view.
//
// The package uses no disk, network or clock, and starts no goroutine.
package mvcc
