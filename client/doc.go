// Package client is the Go client of Leasehold: leases that are kept alive, keys,
// transactions and watches, over leasehold.v1. What is asked about keys is in package store,
// what is told of leases in package leases, and what [Client.Metrics] counts in package metrics.
//
//	c, err := client.New(client.Config{Endpoints: []string{"10.0.0.1:2379", "10.0.0.2:2379"}})
//	...
//	defer c.Close()
//	held, err := c.Grant(ctx, client.Grant{TTL: 10 * time.Second, Name: "primary"})
//	...
//	work(held.Context(), held.Token()) // the context ends if the lease cannot be kept alive
//	err = held.Revoke(ctx)
//
// [Client.Grant] grants a [Lease] and keeps it alive. [Client.Put], [Client.Get], [Client.Range],
// [Client.Delete] and [Client.Txn] are for keys, [Client.Watch] tells how they change, and
// [Client.LeaseEvents] what happens to leases. Locks and elections are in package lock, and there
// are packages queue, pool, members, nodes and cache: a program that wants those hardly needs more
// of this package than New. What rests on a lease in any of them is a [Hold].
//
// A Client talks to one member at a time, over one stream that carries everything: to the one
// that leads, if it can be reached (see Config.AnyMember), and to another when that one does
// not answer. Its methods may be called from any goroutine; what callers ask for meanwhile
// travels together.
//
// # What is promised
//
// A [Lease] counts from the moment before the grant, or the renewal, that was acknowledged
// was sent, less the drift of clocks and a margin. So it stops before the lease can go to
// somebody else, whatever happens to the network, to the members or to this process, as
// long as clocks run at about the same rate. The time that a machine was suspended
// counts. All leases of a client are renewed in batches, by the client, until they are
// revoked, closed or lost. A lease that has ended is never replaced by another: a program
// that wants to go on asks for a new one, with a new token. After Revoke, Close or
// HandOver was called no lease says that it is valid.
//
// A [Watcher] tells each change once, in order, and no revision in part, however often the
// stream breaks; or it says that the changes are not known any more ([ErrCompacted]).
//
// A [LeaseWatcher] does the same for what happens to leases. Its notice of leases that will
// end soon is advice alone.
//
// Requests that may be repeated are repeated, until their context ends: reads, grants
// (each has a request ID, and so makes one lease), renewals, revocations, all that was never
// sent, and all of which the cluster said that nothing was done. Everything else that changes
// something, from a put to a hand-over, has a number, by which it takes effect once however
// often it is sent. If it was sent, and the context ends before there is an answer, or the
// cluster has forgotten the client meanwhile, the error is [ErrUnknownOutcome]: it may have
// taken effect, or may yet.
//
// # What is not promised
//
// A process can be stopped at any time, between any two steps, for any time. So nothing
// that a program asks here about a lease says that it is still valid when the program acts
// on the answer. Where that matters let the resource refuse old fencing tokens
// ([Lease.Token], [Client.CheckToken]), or write to the store by a transaction with a
// condition on the lease ([store.LeaseAlive], [store.NameHeld]).
//
// [Lease.Context] is cancelled by a timer, and a timer of a process that was stopped is
// late. [Lease.State] reads the clock.
//
// A call without a deadline waits for as long as no member answers it, unless what answers is
// no member at all ([ErrNotLeasehold]), or all endpoints are members of other clusters
// ([OtherClusterError]). A client whose members cannot be reached does not know when that will
// change: its leases end by its own clock, and what to do then is the program's decision (see
// Grant.Grace).
package client
