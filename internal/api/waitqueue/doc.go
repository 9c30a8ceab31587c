// Package waitqueue notifies the waiters in wait queues when their turn comes.
//
// The package follows a wait queue (package ticket) while it has a waiter. It reads the queue's
// tickets once, from a view, and then updates them from the events that the watch hub distributes,
// on the hub's goroutine. So the goroutine that applies commands does no work for it. When a ticket
// goes away, the next waiter is found in O(log n). The notification says what happened, so a waiter
// need not read anything.
//
// A notification was true at a revision that this member has applied: all tickets before the
// waiter's own that count were gone, and its own existed. It may be late if the member lags or is
// cut off. If events are missing, because there were too many or a snapshot replaced the state, the
// package reads the queues again.
package waitqueue
