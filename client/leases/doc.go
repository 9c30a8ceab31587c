// Package leases contains the types that identify and describe leases: a [Ref], an [Info], a
// [Filter] for listing leases, and an [Event]. The methods of client.Client take and return these
// values:
//
//	info, err := c.Describe(ctx, leases.Ref{Name: "primary"})
//	for info, err := range c.List(ctx, leases.Filter{Owner: "host-1"}) {
//	w, err := c.LeaseEvents(ctx, leases.Watch{NamePrefix: "workers/"})
//
// A lease held by the program itself is a client.Lease.
package leases
