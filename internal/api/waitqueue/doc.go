// Package waitqueue tells those who wait in queues of their turns.
//
// A wait queue (package ticket) is followed for as long as somebody waits in it: its tickets are
// read once, from a view, and kept up with by the events that the watch hub distributes, on the
// hub's goroutine. So the one who applies pays nothing, and who is next is found in
// O(log n) when a ticket goes, however many wait. Who waits is told what happened, and reads
// nothing.
//
// What is told was true as of a revision that this member has applied: all tickets before
// the waiter's that count were gone, and its own was there. It may be told late: by a
// member that is behind, or cut off. When events are missing, because there were too many
// or a snapshot took the place of the state, the queues are read again.
package waitqueue
