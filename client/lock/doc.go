// Package lock decides who may act: mutexes, read/write locks, semaphores and elections, which
// rest on leases.
//
// A [Session] is one lease and all that a program holds by it. The program grants the lease and
// makes the session of it; when the lease ends, all that hangs on it ends, and none of it comes
// back by itself. A program that wants to go on grants another lease and makes another session.
//
// A [Mutex], [RWMutex] or [Semaphore] is held as a [Held], the lead of an [Election] as a
// [Leading]; both are a [client.Hold]. [Lock] needs no session.
//
// What is promised of these:
//
//   - All wait in queues: below the prefix "name/" each lease has a key, named by its ID in
//     hex, and the oldest key, by create revision, is that of the holder. That is the layout
//     of etcd's package concurrency, so its Mutex and Election and ours exclude each other on
//     one name, in whatever language the other program is.
//   - No two have a Held or Leading of one name (or more of a semaphore than there are
//     permits) whose Err is nil, as long as clocks run at about the same rate and nobody
//     deletes keys or revokes leases of others.
//   - The Context ends when it is over: when the lease is not valid any more, before the
//     cluster may end it, or when somebody deletes the key, which is told within some
//     milliseconds. A waiter is told the same. Nothing is held after a wait without another
//     look at the lease, by the clock, and the member says of a key only as long as it is
//     there that its turn has come.
//   - Tokens are fencing tokens: larger than those of all who held the name before, and never
//     repeated, also not after a restore from a backup. The Owner is a condition for
//     transactions that only the holder may do.
//   - Waiters are served in the order in which they came, except for priorities in elections.
//     What is given up wakes those whose turn it is, and nobody else.
//   - A session that gives up waiting, or does not know whether its request arrived, leaves
//     no key behind for longer than it takes to reach the cluster, or than its lease lives.
//   - Observe tells each change once, in order, and that nobody leads.
//
// What is not promised:
//
//   - A process can be stopped between looking at its lock and acting, for any time. No lock
//     service can prevent that. Let the resource refuse smaller tokens than it has seen, or
//     write to the store by a transaction with the condition Owner.
//   - If somebody revokes a holder's lease, or deletes its key, the next one has the lock at
//     once, and the holder is told at about the same time: for a moment both may believe that
//     they hold it. Tokens tell them apart.
//   - Programs that use etcd's client do not know tokens and priorities. They have create
//     revisions (see [Held.Revision]), which a restore with --bump-revision=0 takes back.
//   - One client follows at most 1,536 watches and tickets together. Of a ticket beyond them it
//     asks every second.
package lock
