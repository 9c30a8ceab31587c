// Package queue is a work queue. Workers claim items, each under a lease of its own: if a worker
// dies, its items become claimable again.
//
// What is promised:
//
//   - A pushed item is worked on at least once. It leaves the queue only when the worker with the
//     claim acknowledges it, or when it becomes a dead letter after too many tries.
//   - Ready items come in the order in which they were pushed, if one Push returned before the
//     next was called. Workers that race for items may change the order a little (see
//     [Queue.Claim]).
//   - At most one worker has a valid claim of an item, as long as clocks run at about the same
//     rate. A claim is valid while its Err is nil: see package client. Tokens rise from claim to
//     claim.
//   - If a process stops at any point, its leases end after their TTL and remove what was half
//     done. There is nothing to repair.
//   - A lost answer does no harm: writes are repeated, and take effect once. If the outcome stays
//     unknown ([client.ErrUnknownOutcome]), the queue reads the state and tries again as long as
//     the context lasts.
//
// What is not promised:
//
//   - That an item is worked on only once. A worker that was paused may go on after its claim has
//     ended. Let the resource refuse smaller tokens, or write to the store by [Item.AckWith].
//   - That a queue with very many claimed or delayed items at its head is fast: a claim reads past
//     their keys, 128 at a time. Some thousands are fine.
//   - That revoking the lease of a claim by hand is safe. The worker finds out at its next
//     renewal; until then two workers may have the item.
package queue
