// Package lock provides mutexes, read/write locks, semaphores and elections.
//
//	err := c.Run(ctx, client.Grant{Owner: host}, func(ctx context.Context, s *client.Session) error {
//		return lock.NewMutex(s, "ledger").Do(ctx, func(ctx context.Context, held *lock.Held) error {
//			return post(ctx, held.Token()) // ctx ends before another program has the lock
//		})
//	})
//
// Locks and leaderships belong to a [client.Session] and end with it. They are never reacquired
// automatically: [client.Client.Run] opens a new session and calls its function again. Locking a
// [Mutex], [RWMutex] or [Semaphore] returns a [Held], and winning an [Election] returns a
// [Leading]. Both are a [client.Hold].
//
// Guarantees:
//
//   - Each lock and each election has a wait queue. A lease in the queue has a key below the prefix
//     "name/"; the rest of the key is the lease's ID in hex. The holder is the lease whose key has
//     the lowest create revision. etcd's package concurrency uses the same layout, so its Mutex and
//     Election exclude ours with the same name, regardless of the other program's language.
//   - For each name, at most one Held or Leading has a nil Err; for a semaphore, the limit is its
//     number of permits. This assumes that clocks run at about the same rate, and that no client
//     deletes the keys or revokes the leases of others.
//   - The Context is canceled when the hold ends: either before the cluster can end the lease, or
//     some milliseconds after a client has deleted the key. Waiters are notified in the same way.
//     After each wait, the session checks by the clock that its lease is valid, and a member
//     reports a key as ready only while the key exists.
//   - Tokens are fencing tokens. A token is larger than the tokens of all earlier holders of the
//     name, and is never reused, not even after a restore from a backup. Use Condition in
//     transactions that only the holder should be able to commit.
//   - Waiters are served in order of arrival, except for priorities in elections. A release wakes
//     only the waiters that become holders.
//   - A session that stops waiting, or that does not know whether its request arrived, deletes its
//     key as soon as it can reach the cluster. Otherwise, the key is deleted with the lease.
//   - Observe yields each leader change once and in order, including the loss of a leader.
//
// Limitations:
//
//   - A process can be paused for any length of time between checking its lock and acting on it.
//     No lock service can prevent that. Let the resource reject tokens smaller than the largest one
//     it has seen, or write to the store in a transaction with the Condition.
//   - If a client revokes the holder's lease or deletes its key, the next waiter gets the lock
//     immediately. The holder is notified at about the same time, so for a moment both may believe
//     that they hold the lock. Their tokens distinguish them.
//   - Programs that use etcd's client have no tokens and no priorities. They have create revisions
//     (see [Held.Revision]), which a restore with --bump-revision=0 rolls back.
//   - A client can have at most 1,536 watches and tickets on its stream. Further tickets are
//     polled once a second.
package lock
