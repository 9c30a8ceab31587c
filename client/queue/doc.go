// Package queue is a work queue. Workers claim items, each under a lease of its own, so that an
// item whose worker dies comes back.
//
// What is promised:
//
//   - An item that was pushed is worked on at least once. It goes when the worker that has the
//     claim acknowledges it, or to the dead letters after so many tries, and never otherwise.
//   - Items come in the order in which they were pushed, as far as one Push returned before the
//     other was called, they are ready, and workers do not race for them (see [Queue.Claim]).
//   - No two workers have a valid claim of one item, as long as clocks run at about the same rate.
//     A valid one is one whose Err is nil: see package client. Tokens rise from claim to claim.
//   - Wherever a process stops, leases end after their TTL and take with them what was half done.
//     There is nothing to repair.
//   - A lost answer does no harm: writes are repeated so that they take effect once. Where even
//     that cannot tell ([client.ErrUnknownOutcome]) it is looked into, and what was asked for is
//     tried again as long as the context lasts.
//
// What is not promised:
//
//   - That an item is worked on only once. A worker that was stopped may go on after its claim has
//     ended. Let the resource refuse smaller tokens, or write to the store by [Item.AckWith].
//   - That a queue with very many claimed or delayed items at its head is fast: a claim reads past
//     their keys, 128 at a time. Some thousands are fine.
//   - That somebody who revokes the lease of a claim by hand does no harm. The worker finds out at
//     its next renewal; until then there may be two.
package queue
