// Package waitqueue tells the waiters in wait queues of their turns.
//
// A wait queue (package ticket) is followed for as long as somebody waits in it. Its tickets
// are read once, from a view, and then follow the events that the watch hub distributes, on
// the hub's goroutine. So the goroutine that applies pays nothing, and the next waiter is
// found in O(log n) when a ticket goes, however many wait. A waiter is told what happened,
// and reads nothing.
//
// What is told was true as of a revision that this member has applied: all tickets before
// the waiter's that count were gone, and its own was there. It may be told late: by a
// member that is behind, or cut off. When events are missing, because there were too many
// or a snapshot took the place of the state, the queues are read again.
package waitqueue
