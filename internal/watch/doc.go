// Package watch delivers to every watcher the events that it requested: first history, then live
// events, each exactly once and in order.
//
// A Hub sits between one writer and many streams. The writer calls Publish once it has made a new
// view of the store current. Publish only appends to a bounded backlog, so its cost does not depend
// on the watchers. One goroutine, the caller of Run, matches the backlog against the watchers and
// fills their queues. The goroutine that serves a client drains its stream with Poll or Next.
//
// # History first, without polling
//
// A watcher queues live events from the moment it is created. It reads history for the revisions up
// to that moment. So a watcher never has to catch up with a busy writer, and events are neither
// lost nor repeated where history and live events meet. The stream's own goroutine reads the
// history immediately. Neither the writer nor a timer is involved.
//
// # Slow watchers
//
// A watcher's queue is bounded. When it is full, the watcher becomes unsynced: later events are
// dropped, and the first dropped revision is recorded. Once the queue has been drained, the watcher
// reads history from that revision, as a new watcher would. If the revision has been compacted in
// the meantime, the watcher ends with the error returned by history. The backlog is bounded in the
// same way: when it is full, every watcher goes back to reading history.
//
// # Contract
//
// All watchers that match an event share it, so it must not change after Publish. A revision is
// always delivered as a whole, in one batch. The package does not depend on Raft, on gRPC, or on
// how the store keeps its history.
package watch
