package members

import "leasehold.dev/client"

// Client returns the client of a group.
func (g *Group) Client() *client.Client { return g.c }

// Lease returns the lease of a membership's session.
func (m *Membership) Lease() *client.Lease { return m.lease() }
