package sim

import (
	"fmt"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
)

// This file contains the clients other than root, and the administrator who grants them
// permissions.

// tenants lists the callers other than root. The role of one of them is assigned outside the
// cluster.
var tenants = [...]access.Caller{
	{User: "alice"}, {User: "bob"}, {User: "carol", Bound: &access.Bound{Roles: []string{"app"}}},
}

// tenantRoles lists the roles of tenants.
var tenantRoles = [...]string{"app", "ops"}

// permitted lists the key ranges used in permissions. They cover the keys of all programs.
var permitted = [...]keyrange.Range{
	{Key: "r", End: "s"},
	{Key: "r", End: "s"},
	{Key: "r0"},
	{Key: "r1", End: "r3"},
	{Key: "k", End: "l"},
	{Key: "k0", End: "k5"},
	{Key: "k2"},
	{Key: "m", End: "n"},
	{Key: "m", End: "n"},
}

// tenantName is a lease name that tenants compete for.
const tenantName = "tenants"

// caller returns the access.Caller of a request from the client. A tenant's login may be out of
// date.
func (c *client) caller(p *process) access.Caller {
	w := c.w
	switch {
	case !w.p.Users:
		return access.Caller{}
	case c.user.User == "":
		return access.Caller{User: access.Root, Revision: 1 << 62}
	}
	if c.login == 0 || w.chance(2) {
		c.login = p.view.Access.Revision()
	}
	who := c.user
	who.Revision = c.login
	return who
}

// guard returns the production guard for a client's stream at a process. The client is treated as
// authenticated by a certificate, which needs no login.
func (c *client) guard(p *process) *api.Guard {
	return api.NewGuard(func() (access.Caller, *access.State) {
		by := p.view.Access
		if c.user.User == "" || !by.Enabled() {
			return access.Caller{}, nil
		}
		return c.certified(by), by
	})
}

// certified is like caller for a client that a certificate authenticates, so its login is never out
// of date.
func (c *client) certified(by *access.State) access.Caller {
	who := c.user
	who.Revision = by.Revision()
	return who
}

// identify records the caller when a request reaches a member.
func (q *call) identify(p *process) {
	if q.op.Caller == (access.Caller{}) {
		q.op.Caller = q.c.caller(p)
	}
}

// permit removes renewals of leases that the caller has no permission to hold.
func (p *process) permit(calls []*call) []*call {
	kept := calls[:0]
	for _, q := range calls {
		q.identify(p)
		if q.admit(p) {
			kept = append(kept, q)
		}
		if q.op.Kind == opGroups {
			q.op.AsOf = p.view.Index
		}
	}
	return kept
}

// mayRenew reports whether the caller may hold the lease that it renews, and otherwise answers the
// request. If the member cannot decide, the client retries.
func (q *call) mayRenew(p *process) bool {
	q.op.AsOf = p.view.Index
	by := fsm.Authorizer{State: q.by, Caller: q.op.Caller}
	decided, err := by.MayRenew(p.r.Machine().Lessor(), q.op.Lease)
	switch {
	case decided && err == nil:
		return true
	case decided:
		p.w.cover["renewal denied"]++
		q.reply(Failed, err)
	default:
		q.reply(Failed, api.ErrUndecided)
	}
	return false
}

// mayRead returns an error if, according to the published state, the caller may not read a range.
func (q *call) mayRead(p *process, key, end string) error {
	q.op.AsOf = p.view.Index
	err := p.view.Access.Check(q.op.Caller, access.Read, keyrange.Range{Key: key, End: end})
	if err != nil {
		p.w.cover["read denied"]++
	}
	return err
}

// addTenants adds the tenants and the administrator.
func (w *world) addTenants() {
	w.newClient(w.anyMember()).spawn((*thread).administrator)
	for _, who := range tenants {
		c := w.newClient(w.anyMember())
		c.user = who
		c.boot()
	}
}

// bootTenant starts the program of a tenant.
func (c *client) bootTenant() {
	c.spawn((*thread).tenant)
	switch c.w.rng.IntN(3) {
	case 0:
		c.spawn((*thread).observer)
	case 1:
		c.spawn((*thread).cacher)
		c.spawn((*thread).peeker)
	default:
		c.spawn((*thread).waiter)
	}
}

// administrator enables access control and then keeps granting and revoking permissions.
func (t *thread) administrator() {
	w := t.c.w
	for _, c := range []fsm.Command{
		&fsm.UserAdd{Name: access.Root, NoPassword: true},
		&fsm.UserGrantRole{User: access.Root, Role: access.Root},
		&fsm.UserAdd{Name: "alice"}, &fsm.UserAdd{Name: "bob"},
		&fsm.RoleAdd{Name: tenantRoles[0]}, &fsm.RoleAdd{Name: tenantRoles[1]},
		&fsm.UserGrantRole{User: "alice", Role: tenantRoles[0]},
		&fsm.UserGrantRole{User: "bob", Role: tenantRoles[1]},
		&fsm.AuthEnable{},
	} {
		for t.command(c).Outcome != Done {
			t.sleep(100 * Millisecond)
		}
	}
	for {
		t.sleep(w.exp(2 * w.p.Think))
		t.command(w.changeOfRights())
	}
}

// changeOfRights draws a change of permissions.
func (w *world) changeOfRights() fsm.Command {
	role := tenantRoles[w.rng.IntN(len(tenantRoles))]
	of := permitted[w.rng.IntN(len(permitted))]
	user := tenants[w.rng.IntN(2)].User
	switch w.rng.IntN(24) {
	case 0, 1, 2:
		return &fsm.UserGrantRole{User: user, Role: role}
	case 3, 4:
		return &fsm.UserRevokeRole{User: user, Role: role}
	case 5:
		return &fsm.UserDelete{Name: user}
	case 6, 7:
		return &fsm.UserAdd{Name: user, NoPassword: true}
	case 8:
		return &fsm.RoleGrant{Role: role, Permission: access.Permission{
			Kind: access.Hold, Key: tenantName,
		}}
	case 9:
		return &fsm.RoleRevoke{Role: role, Key: tenantName, Names: true}
	case 10:
		if w.chance(2) {
			return &fsm.AuthDisable{}
		}
		return &fsm.AuthEnable{}
	case 11:
		return &fsm.AuthEnable{}
	case 12, 13, 14, 15, 16:
		return &fsm.RoleRevoke{Role: role, Key: of.Key, End: of.End}
	default:
		kind := access.ReadWrite
		if w.chance(3) {
			kind = access.Kind(w.rng.IntN(2))
		}
		return &fsm.RoleGrant{Role: role, Permission: access.Permission{
			Kind: kind, Key: of.Key, End: of.End,
		}}
	}
}

// tenant performs operations that it has permission for, and attempts others that it does not.
func (t *thread) tenant() {
	w := t.c.w
	var s *session
	for {
		t.think()
		key := fmt.Sprintf("%c%d", "rk"[w.rng.IntN(2)], w.rng.IntN(5))
		other := fmt.Sprintf("r%d", w.rng.IntN(4))
		switch w.rng.IntN(14) {
		case 0, 1:
			t.command(&fsm.Put{Key: key, Value: w.value(), PrevKV: w.chance(2)})
		case 2:
			t.command(&fsm.DeleteRange{Key: "r1", End: "r3", PrevKV: w.chance(2)})
		case 3:
			t.command(&fsm.Txn{
				Compare: []fsm.Compare{
					{Key: key, Target: fsm.TargetVersion, Relation: fsm.Greater, Number: 0},
				},
				Then: []fsm.Op{{Put: &fsm.Put{Key: key, Value: w.value()}}},
				Else: []fsm.Op{{Range: &fsm.Range{Key: other}}},
			})
		case 4, 5:
			t.get(key, "", mvcc.RangeOptions{}, w.chance(2))
		case 6, 7:
			t.get("r", "s", mvcc.RangeOptions{}, w.chance(2))
		case 8:
			t.command(&fsm.Put{Key: key, Value: w.value(), Lease: t.anyLease()})
		case 9:
			t.command(&fsm.Revoke{ID: t.unreliedLease(), By: t.c.user.User})
		case 10:
			t.do(&Op{Kind: opRenew, Request: Request{Lease: t.anyLease()}})
		case 11:
			info, _ := w.oracle.machine.Lessor().Lookup(t.unreliedLease())
			t.command(&fsm.ChangeTTL{ID: info.ID, Token: info.Token, TTL: w.ttl()})
		default:
			s = t.tend(s, key)
		}
	}
}

// anyLease returns one of the most recently granted leases.
func (t *thread) anyLease() lease.ID {
	w := t.c.w
	if n := len(w.leases); n > 0 {
		return w.leases[n-1-w.rng.IntN(min(n, 10))]
	}
	return 1
}

// unreliedLease returns a lease that no client relies on, possibly another tenant's lease. A client
// whose lease protects more than keys would not detect that another client ended the lease.
func (t *thread) unreliedLease() lease.ID {
	w := t.c.w
	if n := len(w.strays); n > 0 && !w.chance(3) {
		return w.strays[n-1-w.rng.IntN(min(n, 6))]
	}
	terms := lease.Terms{ID: lease.ID(w.rng.Int64N(1<<40) + 1), TTL: w.ttl()}
	t.c.owned(&terms)
	t.command(&fsm.Grant{Terms: terms})
	w.strays = append(w.strays, terms.ID)
	return terms.ID
}

// tend performs a random operation on the tenant's lease. If there is no lease, it grants one.
func (t *thread) tend(s *session, key string) *session {
	w := t.c.w
	switch {
	case s == nil || s.ended:
		terms := lease.Terms{TTL: w.ttl()}
		if w.chance(3) {
			terms.Name = tenantName
		}
		return t.grant(terms)
	case w.chance(4):
		t.revoke(s)
	case w.chance(4):
		s.rest()
		return nil
	default:
		t.command(&fsm.Put{Key: key, Value: w.value(), Lease: s.terms.ID})
	}
	return s
}

// owned usually makes the tenant the owner of a lease that it grants. Leases granted through etcd's
// API have no owner.
func (c *client) owned(terms *lease.Terms) {
	if c.user.User != "" && !c.w.chance(3) {
		terms.Principal = c.user.User
	}
}
