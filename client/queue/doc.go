// Package queue is a work queue. Workers claim items, and each claim has its own lease. If a worker
// dies, its items become claimable again.
//
// Guarantees:
//
//   - A pushed item is processed at least once. It leaves the queue only when the worker with the
//     claim acknowledges it, or when it becomes a dead letter after too many tries.
//   - Ready items are delivered in the order in which they were pushed, if each Push returned
//     before the next was called. Workers that race for items may change the order slightly (see
//     [Queue.Claim]).
//   - At most one worker has a valid claim on an item, as long as clocks run at about the same
//     rate. A claim is valid while its Err is nil. See package client. Tokens increase from claim
//     to claim.
//   - If a process stops at any point, its leases end after their TTL, and any unfinished work ends
//     with them. No repair is needed.
//   - A lost answer is harmless: writes are retried, and take effect only once. If the outcome
//     remains unknown ([client.ErrUnknownOutcome]), the queue reads the state and tries again until
//     the context ends.
//
// Limitations:
//
//   - An item may be processed more than once. A worker that was paused may continue after its
//     claim has ended. Let the resource reject smaller tokens, or write to the store with
//     [Item.AckWith].
//   - A queue with many claimed or delayed items at its head is slow, because a claim has to read
//     past their keys, 128 at a time. A few thousand are no problem.
//   - Revoking the lease of a claim by hand is not safe. The worker detects this only at its next
//     renewal, so until then two workers may have the item.
package queue
