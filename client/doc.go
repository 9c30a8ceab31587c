// Package client is the Go client of Leasehold: sessions and leases that are kept alive, keys,
// transactions and watches, over leasehold.v1.
//
//	c, err := client.New(client.Config{Endpoints: []string{"10.0.0.1:2379", "10.0.0.2:2379"}})
//	...
//	defer c.Close()
//	err = c.Run(ctx, client.Grant{Owner: host}, func(ctx context.Context, s *client.Session) error {
//		held, err := lock.NewMutex(s, "ledger").Lock(ctx)
//		...
//		return work(ctx, held.Token()) // ctx ends before another program can have the lock
//	})
//
// [Client.Run] opens a [Session], calls a function in it, and opens another one if the session is
// lost. Packages lock and members use a session; queue and cache need only the Client. Everything
// that depends on a lease in these packages is a [Hold].
//
// [Client.Put], [Client.Get], [Client.Range], [Client.Delete] and [Client.Txn] operate on keys,
// with the requests of package store. [Client.Watch] reports changes of keys, and
// [Client.LeaseEvents] what happens to leases. A program that needs more than a session, such as a
// lease that it can hand over, uses [Client.Grant].
//
// A Client talks to one member at a time, over one stream for everything. It prefers the leader
// (see Config.AnyMember), and moves to another member if its own stops responding. Its methods may
// be called from any goroutine; concurrent requests share messages.
//
// # Guarantees
//
// The client considers a [Lease] valid from just before it sent the acknowledged grant or renewal,
// minus clock drift and a margin. So the lease stops being valid before another holder can get it,
// regardless of failures of the network, the members or this process, provided that clocks run at
// about the same rate. Time during which the machine is suspended counts. The client renews all its
// leases in batches, until they are revoked, closed or lost. It never replaces a lease that has
// ended: the program must grant a new one, with a new token. A lease is never valid after Revoke,
// Close or HandOver has been called.
//
// A [Watcher] reports each change once, in order, and each revision as a whole, no matter how often
// the stream breaks. If the cluster no longer has the changes, it fails with [ErrCompacted].
//
// A [LeaseWatcher] does the same for lease events. Its notice of leases that will end soon is
// advisory.
//
// The client retries requests until their context ends, where that is safe: reads, grants (each has
// a request ID, so it creates one lease), renewals, revocations, requests that were never sent, and
// requests that the cluster reports as not applied. Every other request that changes something,
// from a put to a hand-over, has a number, which makes it take effect once; the client retries it
// too. The error is [ErrUnknownOutcome] if such a request was sent, and the context ends before the
// answer arrives or the cluster has dropped the client's session. The request may have taken
// effect, or may still do so.
//
// # Limits
//
// A process can be paused between any two steps, for any time. So a lease that was valid when the
// program checked may have ended when the program acts. Where that matters, let the resource reject
// old fencing tokens ([Lease.Token], [Client.CheckLease]), or write to the store in a transaction
// with a condition on the lease ([store.LeaseAlive], [store.NameHeld]).
//
// A timer cancels [Lease.Context]; after a pause of the process it fires late. [Lease.State] reads
// the clock.
//
// A call without a deadline waits until a member answers. It fails at once if the servers are not
// members at all ([ErrNotLeasehold]), or if all endpoints belong to other clusters
// ([ErrOtherCluster]). While a client reaches no member, its leases end by its own clock. What
// happens then is up to the program (see Grant.Grace).
package client
