// Package mvcc is an in-memory multi-version key-value store with etcd's data model: every change
// has a revision, and the store can be read as of any revision since the last compaction.
//
// A [Store] belongs to one goroutine. Other goroutines use a [View], an immutable value that takes
// constant time to create. Readers, watchers and the snapshot writer can keep a View indefinitely
// while the owner continues to write. Later changes to the store, including compactions, do not
// change a View.
//
// Every version of a key is an immutable record. There are two ways to find a record:
//
//   - The history contains all records in revision order, in chunks. A chunk is either appended to
//     or replaced as a whole. Events, hashes and snapshots read the history.
//   - Two copy-on-write B-trees contain an entry for each key. One has the live keys. The other has
//     the keys deleted since the compaction, so that a range read at the current revision never
//     encounters deleted keys. An entry has the newest record of the key and the older ones.
//
// A view of revision r takes from each entry the newest record at or before r. So overwriting a key
// changes no tree: it appends a record to the entry, and older views skip that record. Only
// creating or deleting a key copies a path in a tree.
//
// Compaction is logical and immediate: it raises a number that every read checks. Scrub frees the
// memory in small steps whenever the owner is idle. It never removes a record from an entry or
// chunk that a view may be using. Instead it replaces the entry or chunk, and the garbage collector
// frees the old one with the last view.
//
// The package uses no disk, network or clock, and starts no goroutines.
package mvcc
