// Package client is the Go client of Leasehold: sessions and leases that are kept alive, keys,
// transactions and watches, over leasehold.v1.
//
//	c, err := client.New(client.Config{Endpoints: []string{"10.0.0.1:2379", "10.0.0.2:2379"}})
//	...
//	defer c.Close()
//	err = c.Run(ctx, client.Session{Owner: host}, func(ctx context.Context, s *client.Live) error {
//		held, err := lock.NewMutex(s, "ledger").Lock(ctx)
//		...
//		return work(ctx, held.Token()) // ctx ends before another program can have the lock
//	})
//
// [Client.Run] opens a session, a [Live], calls a function in it, and opens the next one if the
// session is lost. Packages lock and members take things in a session; queue and cache need only
// the Client. Whatever rests on a lease in any of them is a [Hold].
//
// [Client.Put], [Client.Get], [Client.Range], [Client.Delete] and [Client.Txn] are for keys, with
// the requests of package store. [Client.Watch] tells how keys change, and [Client.LeaseEvents]
// what happens to leases. A program that needs more than a session, for example a name or to hand
// its lease over, grants a [Lease] by [Client.Grant].
//
// A Client talks to one member at a time, over one stream that carries everything. It prefers the
// leader (see Config.AnyMember), and turns to another member when its own does not answer. Its
// methods may be called from any goroutine; requests of concurrent callers travel together.
//
// # What is promised
//
// The client takes a [Lease] as valid from the moment just before it sent the grant or renewal
// that was acknowledged, minus clock drift and a margin. So the lease stops being valid before
// another holder can get it, whatever happens to the network, the members or this process, as
// long as clocks run at about the same rate. Time in which the machine was suspended counts. The
// client renews all its leases in batches, until they are revoked, closed or lost. It never
// replaces a lease that has ended: a program that wants to go on asks for a new one, with a new
// token. No lease says that it is valid after Revoke, Close or HandOver was called.
//
// A [Watcher] tells each change once, in order, and each revision whole, however often the stream
// breaks. If the cluster does not know the changes any more, it says so ([ErrCompacted]).
//
// A [LeaseWatcher] does the same for events of leases. Its notice of leases that will end soon is
// only advice.
//
// The client repeats requests until their context ends, if that is safe: reads, grants (each has
// a request ID, and so makes one lease), renewals, revocations, requests that were never sent,
// and requests of which the cluster said that nothing was done. Every other request that changes
// something, from a put to a hand-over, has a number: the client repeats it as well, and it takes
// effect once. The error is [ErrUnknownOutcome] if such a request was sent, and the context ends
// before the answer comes or the cluster has forgotten the client. It may have taken effect, or
// may yet.
//
// # What is not promised
//
// A process can be stopped between any two steps, for any time. So a lease that was valid when
// the program asked may have ended when the program acts on the answer. Where that matters, let
// the resource refuse old fencing tokens ([Lease.Token], [Client.CheckLease]), or write to the
// store in a transaction with a condition on the lease ([store.LeaseAlive], [store.NameHeld]).
//
// A timer cancels [Lease.Context], and the timers of a process that was stopped are late.
// [Lease.State] reads the clock.
//
// A call without a deadline waits until a member answers. It fails at once if the servers are not
// members at all ([ErrNotLeasehold]), or all endpoints are members of other clusters
// ([OtherClusterError]). While a client reaches no member, its leases end by its own clock. The
// program decides what to do then (see Grant.Grace).
package client
