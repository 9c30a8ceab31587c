// Package watch delivers to every watcher the events that it asked for: history first, then live
// events, each once and in order.
//
// A Hub stands between one writer and many streams. The writer calls Publish after it has made a
// new view of the store current; Publish only appends to a bounded backlog, so its cost does not
// depend on the watchers. One goroutine, the caller's, in Run, matches the backlog against the
// watchers and puts the events into their queues. Each stream is drained by the goroutine that
// serves its client, with Poll or Next.
//
// # History first, without polling
//
// A watcher starts to queue live events at the moment it is created; history
// is read for the revisions up to that moment and no further. So there is no
// race to catch up with a busy writer, and no gap or repeat at the seam. Its
// history is read by the stream's own goroutine, at once, never by the writer
// and never on a timer.
//
// # Slow watchers
//
// The queue of a watcher is bounded. When it is full the watcher becomes
// unsynced: later events are dropped, and the first dropped revision noted.
// Once the queue has been taken the watcher reads history from that revision,
// exactly as a new watcher would. If the revision has been compacted meanwhile
// the watcher ends with the history's error. The backlog is bounded in the
// same way: when it is full, every watcher is sent back to history.
//
// # Contract
//
// Events are shared by all watchers they match, and must not change after Publish. A revision is
// always handed out whole, in one batch. The package does not know Raft, gRPC or how the store
// keeps its history.
package watch
