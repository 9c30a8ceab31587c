// Package lock has mutexes, read/write locks, semaphores and elections.
//
//	err := c.Run(ctx, client.Session{Owner: host}, func(ctx context.Context, s *client.Live) error {
//		return lock.NewMutex(s, "ledger").Do(ctx, func(ctx context.Context, held *lock.Held) error {
//			return post(ctx, held.Token()) // ctx ends before another program has the lock
//		})
//	})
//
// Locks and leads are taken in a session, a [client.Live]. When it is lost they end with it, and
// none comes back by itself: [client.Client.Run] opens another session and calls the function
// again. Locking a [Mutex], [RWMutex] or [Semaphore] returns a [Held], and leading an [Election] a
// [Leading]; both are a [client.Hold].
//
// What is promised:
//
//   - Each lock and election has a wait queue: below the prefix "name/" each lease has a key,
//     named by its ID in hex. The holder has the key with the lowest create revision. That is the
//     layout of etcd's package concurrency, so its Mutex and Election and ours exclude each other
//     on one name, whatever language the other program is written in.
//   - At most one Held or Leading of a name (of a semaphore, at most as many as it has permits)
//     has a nil Err, as long as clocks run at about the same rate and no client deletes keys or
//     revokes leases of others.
//   - The Context ends when the hold ends: when the lease is no longer valid, before the cluster
//     may end it; or when a client deletes the key, some milliseconds later. A waiter learns the
//     same. After each wait the session checks by the clock that its lease is valid, and a member
//     says that a key's turn has come only while the key exists.
//   - Tokens are fencing tokens: larger than those of all earlier holders of the name, and never
//     repeated, not even after a restore from a backup. Condition is for transactions that only
//     the holder may do.
//   - Waiters are served in order of arrival, except for priorities in elections. A release wakes
//     only the waiters whose turn it is.
//   - A session that stops waiting, or does not know whether its request arrived, deletes its key
//     as soon as it reaches the cluster. Otherwise the key ends with the lease.
//   - Observe tells each change of the leader once, in order, also when there is no leader.
//
// What is not promised:
//
//   - A process can be stopped for any time between checking its lock and acting. No lock service
//     can prevent that. Let the resource refuse smaller tokens than it has seen, or write to the
//     store in a transaction with the Condition.
//   - If a client revokes the holder's lease, or deletes its key, the next waiter has the lock at
//     once. The holder is told at about the same time: for a moment both may believe that they
//     hold it. Tokens tell them apart.
//   - Programs that use etcd's client do not know tokens and priorities. They have create
//     revisions (see [Held.Revision]), which a restore with --bump-revision=0 takes back.
//   - One client has at most 1,536 watches and tickets together on its stream. It polls each
//     further ticket once a second.
package lock
