// Package leases contains the values that identify and describe leases: a [Ref], the [Info] of a
// lease, a [Filter] for lists, and the [Event] of a lease. The methods of a client.Client take and
// return these values:
//
//	info, err := c.Describe(ctx, leases.Ref{Name: "primary"})
//	for info, err := range c.List(ctx, leases.Filter{Owner: "host-1"}) {
//	w, err := c.LeaseEvents(ctx, leases.Watch{NamePrefix: "workers/"})
//
// A lease that a program holds itself is a client.Lease.
package leases
