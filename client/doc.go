// Package client is the Go client for Leasehold. It keeps sessions and leases alive, and provides
// keys, transactions and watches. It uses the API leasehold.v1.
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
// [Client.Run] opens a [Session] and calls a function in it. If the session is lost, Run opens
// another one. Packages lock and members need a session; queue and cache need only the Client.
// Everything in these packages that depends on a lease is a [Hold].
//
// [Client.Put], [Client.Get], [Client.Range], [Client.Delete] and [Client.Txn] operate on keys.
// They take the request types of package store. [Client.Watch] reports changes to keys, and
// [Client.LeaseEvents] reports lease events. A program that needs more control than a session
// offers, such as handing over a lease, uses [Client.Grant].
//
// A Client talks to one member at a time and sends everything over one stream. It prefers the
// leader (see Config.AnyMember), and moves to another member if its current one stops responding.
// Its methods are safe for concurrent use; concurrent requests share messages.
//
// # Guarantees
//
// The client measures the validity of a [Lease] from just before it sent the grant or renewal that
// was acknowledged, and subtracts clock drift and a margin. So the lease stops being valid before
// another holder can get it, no matter how the network, the members or this process fail, as long
// as all clocks run at about the same rate. Time during which the machine is suspended counts as
// elapsed time. The client renews all its leases in batches until they are revoked, closed or lost.
// It never replaces a lease that has ended; the program must grant a new one, which gets a new
// token. A lease is never valid after Revoke, Close or HandOver has been called.
//
// A [Watcher] reports each change exactly once and in order, and each revision as a whole, no
// matter how often the stream breaks. If the cluster no longer has the changes, the Watcher fails
// with [ErrCompacted].
//
// A [LeaseWatcher] gives the same guarantees for lease events. Its warnings about leases that will
// end soon are advisory.
//
// The client retries requests until their context ends if a retry is safe. That includes reads,
// grants (each has a request ID, so it creates at most one lease), renewals, revocations, requests
// that were never sent, and requests that the cluster reports as not applied. Every other request
// that changes something, from a put to a handover, carries a number that makes it take effect only
// once, so the client retries it too. Such a request returns [ErrUnknownOutcome] if it was sent but
// not answered before its context ended or the cluster dropped the client's session. The request
// may have taken effect, or may still do so.
//
// # Limits
//
// A process can be paused between any two steps, for any length of time. So a lease that was valid
// when the program checked it may have ended by the time the program acts. Where that matters,
// either let the resource reject old fencing tokens ([Lease.Token], [Client.CheckLease]), or write
// to the store in a transaction with a condition on the lease ([store.LeaseAlive],
// [store.NameHeld]).
//
// [Lease.Context] is canceled by a timer, which fires late if the process was paused. [Lease.Err]
// reads the clock.
//
// A call without a deadline waits until a member answers. It fails immediately if the servers are
// not Leasehold members ([ErrNotLeasehold]), or if all endpoints belong to other clusters
// ([ErrOtherCluster]). While the client cannot reach any member, its leases still end according to
// its own clock. What happens then is up to the program (see Grant.Grace).
package client
