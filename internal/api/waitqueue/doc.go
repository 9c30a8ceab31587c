// Package waitqueue notifies waiters in wait queues when their tickets are ready.
//
// The package follows a wait queue (see package ticket) while the queue has waiters. It reads the
// tickets of the queue once, from a view. Afterwards it applies the events that the watch hub
// distributes. It does so on the hub's goroutine, so it adds no cost to the goroutine that applies
// commands. When a ticket is removed, finding the next waiter takes O(log n). A notification
// includes the outcome, so the waiter does not have to read anything.
//
// A notification that a ticket is ready was correct at some revision that this member has applied:
// the ticket existed, and fewer than Permits of the tickets that count were ahead of it. A
// notification may be late if the member is behind or partitioned. Events can be missing because
// there were too many, or because a snapshot replaced the state. In these cases the package reads
// the queues again.
package waitqueue
