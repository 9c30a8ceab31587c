// Package lock provides mutexes, read/write locks, semaphores and elections.
//
//	err := c.Run(ctx, client.Grant{Owner: host}, func(ctx context.Context, s *client.Session) error {
//		return lock.NewMutex(s, "ledger").Do(ctx, func(ctx context.Context, held *lock.Held) error {
//			return post(ctx, held.Token()) // ctx ends before another program has the lock
//		})
//	})
//
// Locks and leads are taken in a session, a [client.Session], and end with it. They are never taken
// again automatically: [client.Client.Run] opens a new session and calls its function again.
// Locking a [Mutex], [RWMutex] or [Semaphore] returns a [Held], and leading an [Election] returns a
// [Leading]; both are a [client.Hold].
//
// Guarantees:
//
//   - Each lock and election has a wait queue: each lease has a key below the prefix "name/", named
//     by its ID in hex. The holder is the lease with the lowest create revision. This is the layout
//     of etcd's package concurrency, so its Mutex and Election exclude ours of the same name,
//     regardless of the other program's language.
//   - At most one Held or Leading of a name (for a semaphore, at most as many as it has permits)
//     has a nil Err, provided that clocks run at about the same rate and no client deletes keys or
//     revokes leases of others.
//   - The Context ends when the hold ends: when the lease is no longer valid, before the cluster
//     may end it; or when a client deletes the key, some milliseconds later. Waiters are notified
//     in the same way. After each wait, the session checks by the clock that its lease is valid,
//     and a member reports a turn only while the key exists.
//   - Tokens are fencing tokens: larger than those of all earlier holders of the name, and never
//     reused, not even after a restore from a backup. Condition is for transactions that only the
//     holder may commit.
//   - Waiters are served in order of arrival, except for priorities in elections. A release wakes
//     only the waiters whose turn it is.
//   - A session that stops waiting, or does not know whether its request arrived, deletes its key
//     as soon as it reaches the cluster. Otherwise, the key is deleted with the lease.
//   - Observe yields each change of the leader once, in order, including that there is none.
//
// Limitations:
//
//   - A process can be paused between checking its lock and acting on it, for any length of time.
//     No lock service can prevent that. Let the resource reject tokens smaller than the largest it
//     has seen, or write to the store in a transaction with the Condition.
//   - If a client revokes the holder's lease, or deletes its key, the next waiter gets the lock
//     immediately. The holder is notified at about the same time, so for a moment both may believe
//     that they hold it. Tokens tell them apart.
//   - Programs that use etcd's client have no tokens and no priorities. They have create revisions
//     (see [Held.Revision]), which a restore with --bump-revision=0 rolls back.
//   - A client can have at most 1,536 watches and tickets on its stream. Further tickets are
//     polled once a second.
package lock
