// Package waitqueue notifies waiters in wait queues when their tickets are ready.
//
// The package follows a wait queue (package ticket) while it has a waiter. It reads the queue's
// tickets once, from a view, and then applies the events that the watch hub distributes, on the
// hub's goroutine. So it costs nothing on the goroutine that applies commands. When a ticket goes
// away, the next waiter is found in O(log n). The notification contains the outcome, so the waiter
// need not read anything.
//
// A notification was true at a revision that this member has applied: all tickets that count before
// the waiter's own were gone, and its own existed. It may be late if the member is behind or cut
// off. If events are missing, because there were too many or a snapshot replaced the state, the
// package reads the queues again.
package waitqueue
