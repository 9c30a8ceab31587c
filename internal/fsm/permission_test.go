package fsm

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
	"leasehold.dev/test/tier"
)

// tenants returns a state with access control. Alice can read and write [a, b) and read [c, d), bob
// can write [c, d), and eve has no role.
func tenants(t testing.TB) *Machine {
	t.Helper()
	m := New(Config{})
	for _, c := range []Command{
		&UserAdd{Name: "root", NoPassword: true}, &UserGrantRole{"root", "root"},
		&UserAdd{Name: "alice", NoPassword: true}, &UserAdd{Name: "bob", NoPassword: true},
		&UserAdd{Name: "eve", NoPassword: true}, &RoleAdd{"a"}, &RoleAdd{"c"},
		&RoleGrant{"a", access.Permission{Kind: access.ReadWrite, Key: "a", End: "b"}},
		&RoleGrant{"a", access.Permission{Kind: access.Read, Key: "c", End: "d"}},
		&RoleGrant{"c", access.Permission{Kind: access.Write, Key: "c", End: "d"}},
		&UserGrantRole{"alice", "a"}, &UserGrantRole{"bob", "c"}, &AuthEnable{},
	} {
		mustApply(t, m, c)
	}
	return m
}

// as returns a command from a user that has just logged in. If user is empty, the caller is
// anonymous.
func as(m *Machine, user string, c Command) *By {
	if user == "" {
		return &By{Command: c}
	}
	return &By{access.Caller{User: user, Revision: m.meta.access.Revision()}, c}
}

// TestPermit checks that each command requires the same permissions as in etcd, and that a denied
// command changes nothing. In etcd, the previous pair and the lease of a put in a transaction were
// not checked (CVE-2026-44283).
func TestPermit(t *testing.T) {
	denied, empty := access.ErrPermissionDenied, access.ErrUserEmpty
	get := func(key, end string) Op { return Op{Range: &Range{Key: key, End: end}} }
	in := func(op Op) *Txn { return &Txn{Then: []Op{{Txn: &Txn{Else: []Op{op}}}}} }
	for name, c := range map[string]struct {
		c                Command
		alice, bob, root error
	}{
		"put":                  {&Put{Key: "a"}, nil, denied, nil},
		"put with what it was": {&Put{Key: "c", PrevKV: true}, denied, denied, nil},
		"put, unread":          {&Put{Key: "c"}, denied, nil, nil},
		"put on no lease":      {&Put{Key: "a", Lease: 77}, lease.ErrNotFound, denied, lease.ErrNotFound},
		"put on a lease":       {&Put{Key: "a", Lease: 2}, denied, denied, nil},
		"put on a name":        {&Put{Key: "a", LeaseName: "n"}, denied, denied, nil},
		"put on a lease with what it was": {
			&Put{Key: "a", PrevKV: true, Lease: 2}, denied, denied, nil,
		},
		"delete":         {&DeleteRange{Key: "a", End: "b"}, nil, denied, nil},
		"delete all":     {&DeleteRange{Key: "a", End: "\x00"}, denied, denied, nil},
		"delete, unread": {&DeleteRange{Key: "c", End: "d"}, denied, nil, nil},
		"delete with what it was": {
			&DeleteRange{Key: "c", End: "d", PrevKV: true}, denied, denied, nil,
		},
		"condition":        {&Txn{Compare: []Compare{{Key: "c"}}}, nil, denied, nil},
		"condition on all": {&Txn{Compare: []Compare{{Key: "c", End: "\x00"}}}, denied, denied, nil},
		"read in it":       {in(get("a", "b")), nil, denied, nil},
		"read too much":    {in(get("a", "c")), denied, denied, nil},
		"put in it":        {in(Op{Put: &Put{Key: "c"}}), denied, nil, nil},
		"put in it with what it was": {
			in(Op{Put: &Put{Key: "c", PrevKV: true}}), denied, denied, nil,
		},
		"put in it on a lease": {in(Op{Put: &Put{Key: "c", Lease: 1}}), denied, denied, nil},
		"delete in it":         {in(Op{Delete: &DeleteRange{Key: "c"}}), denied, nil, nil},
		"revoke in it":         {in(Op{Revoke: &Revoke{ID: 2}}), denied, nil, nil},
		"touch in it":          {in(Op{Touch: &Touch{ID: 2}}), denied, nil, nil},
		"touch of a name":      {in(Op{Touch: &Touch{Name: "n"}}), denied, denied, nil},
		"alive":                {&Txn{Compare: []Compare{{Target: TargetLeaseAlive}}}, nil, nil, nil},
		"token": {
			&Txn{Compare: []Compare{{Target: TargetNameToken, Key: "n"}}}, denied, denied, nil,
		},
		"lease of a name": {
			&Txn{Compare: []Compare{{Target: TargetLeaseName, Key: "c", Value: []byte("n")}}},
			denied, denied, nil,
		},
		"grant":           {&Grant{Terms: lease.Terms{ID: 9, TTL: 1000}}, nil, nil, nil},
		"grant of a name": {&Grant{Terms: lease.Terms{TTL: 1, ID: 9, Name: "m"}}, denied, denied, nil},
		"grant to another": {
			&Grant{Terms: lease.Terms{ID: 9, TTL: 1, Principal: "bob"}}, denied, nil, nil,
		},
		"grant with any owner": {
			&Grant{Terms: lease.Terms{ID: 9, TTL: 1, Owner: "bob"}}, nil, nil, nil,
		},
		"hold": {&Grant{
			Terms: lease.Terms{ID: 9, TTL: 1}, Holds: []keyrange.Range{{Key: "c", End: "d"}},
		}, nil, denied, nil},
		"hold too much": {&Grant{
			Terms: lease.Terms{ID: 9, TTL: 1}, Holds: []keyrange.Range{{Key: "c"}, {Key: "e"}},
		}, denied, denied, nil},
		"revoke":         {&Revoke{ID: 2}, denied, nil, nil},
		"revoke an own":  {&Revoke{ID: 1}, nil, denied, nil},
		"revoke a name":  {&Revoke{Name: "n"}, denied, denied, nil},
		"change the TTL": {&ChangeTTL{ID: 1, Token: 1, TTL: 7}, denied, denied, nil},
		"hand over":      {&HandOver{ID: 1, Token: 1, Owner: "x"}, denied, denied, nil},
		"session":        {&OpenSession{}, nil, nil, nil},
		"compact":        {&Compact{Revision: 2}, denied, denied, nil},
		"alarm":          {&SetAlarm{Alarm: Alarm{Kind: NoSpace}}, denied, denied, nil},
		"member":         {&SetMember{Member{ID: 1}}, denied, denied, ErrMemberNotFound},
		"add a member":   {&AddMember{Member{ID: 1}}, denied, denied, nil},
		"remove one":     {&RemoveMember{ID: 1}, denied, denied, ErrMemberNotFound},
		"promote one":    {&PromoteMember{ID: 1}, denied, denied, ErrMemberNotFound},
		"version":        {&SetVersion{Version: 1}, denied, denied, ErrNoDowngrade},
		"user":           {&UserAdd{Name: "x"}, denied, denied, nil},
		"off":            {&AuthDisable{}, denied, denied, nil},
	} {
		for user, want := range map[string]error{
			"alice": c.alice, "bob": c.bob, "root": c.root, "": empty, "unwrapped": nil, "gone": denied,
		} {
			m := tenants(t)
			for _, c := range []Command{
				&Grant{Terms: lease.Terms{ID: 1, TTL: 1000}},
				&Grant{Terms: lease.Terms{ID: 2, TTL: 1000}},
				&Grant{Terms: lease.Terms{ID: 3, TTL: 1000, Name: "n"}},
				&Put{Key: "a1", Lease: 1}, &Put{Key: "c1", Lease: 2},
			} {
				mustApply(t, m, as(m, "root", c))
			}
			cmd, before := Command(as(m, user, c.c)), m.View()
			if c.c.kind().repeatable() {
				numbered := m.denied(as(m, user, &Once{Command: c.c}))
				if plain := m.denied(cmd); fmt.Sprint(numbered) != fmt.Sprint(plain) {
					t.Errorf("%s by %q, with a number: %v, not %v", name, user, numbered, plain)
				}
			}
			if user == "unwrapped" {
				if cmd, want = c.c, empty; fromMembers(cmd) {
					continue // members can issue this command themselves
				}
			}
			r := apply(t, m, cmd)
			if user == "gone" && errors.Is(r.Err, access.ErrUserNotFound) {
				want = r.Err // etcd returns this error for commands that only root can issue
			}
			if !errors.Is(r.Err, want) || (r.Err == nil) != (want == nil) {
				t.Errorf("%s by %q: %v, not %v", name, user, r.Err, want)
			}
			after := m.View()
			if denial(r.Err) && (after.KV != before.KV || after.Access != before.Access) {
				t.Errorf("%s by %q was refused and done", name, user)
			}
		}
	}
}

// TestPermitTime checks that permission checks do not make a step take too long. Unless root issues
// it, a put on a lease with many keys is charged for these keys, and the cost of a transaction is
// bounded.
func TestPermitTime(t *testing.T) {
	const keys = applyTime / 32
	leases := lease.ID(tier.Budget(2, 33)) // 33 are too many for one transaction
	m := tenants(t)
	for id := range leases {
		mustApply(t, m, as(m, "alice", &Grant{Terms: lease.Terms{ID: id + 1, TTL: 1000}}))
		m.Begin(m.Index()+1, 1)
		for i := range keys {
			put := &Put{Key: fmt.Sprintf("a%02d/%06d", id, i), Lease: id + 1}
			if r := m.Apply(as(m, "root", put)); r.Err != nil {
				t.Fatal(r.Err)
			}
		}
	}
	txn := func(of ...lease.ID) *Txn {
		c := new(Txn)
		for _, id := range of {
			for n := range 2 {
				put := &Put{Key: fmt.Sprintf("a%d/%d", id, n), Lease: id}
				c.Then = append(c.Then, Op{Txn: &Txn{Else: []Op{{Put: put}}}})
			}
		}
		return c
	}
	const looked = keys
	for name, c := range map[string]struct {
		c         Command
		user      string
		unapplied int64
		min, max  int64
	}{
		"put":              {&Put{Key: "a", Lease: 1}, "alice", 0, looked, looked + 8},
		"once":             {&Once{Command: &Put{Key: "a", Lease: 1}}, "alice", 0, looked, looked + 8},
		"behind others":    {&Put{Key: "a", Lease: 1}, "alice", 8 * keys, 2 * looked, 2*looked + 8},
		"on no lease":      {&Put{Key: "a"}, "alice", keys, 8, 8},
		"by root":          {&Put{Key: "a", Lease: 1}, "root", keys, 8, 8},
		"in a transaction": {txn(1, 2), "alice", 0, 4 * looked, 4*looked + 100},
		"in one of root's": {txn(1, 2), "root", keys, 8, 100},
		"a user":           {&UserAdd{Name: "x"}, "root", 40, int64(8 * (6 + m.meta.access.Len())), 100},
	} {
		if d := m.Time(as(m, c.user, c.c), c.unapplied); d < c.min || d > c.max {
			t.Errorf("%s: estimated at %d, not %d to %d", name, d, c.min, c.max)
		}
	}
	if !tier.InCampaign() {
		return
	}
	var all []lease.ID
	for id := range leases {
		all = append(all, id+1)
	}
	if r := apply(t, m, as(m, "alice", txn(all...))); r.Err != ErrTxnTooLarge { //nolint:errorlint
		t.Errorf("a transaction looked at %d keys of leases: %v", keys*int(leases), r.Err)
	}
	mustApply(t, m, as(m, "alice", txn(all[:applyTime/keys]...)))
	mustApply(t, m, as(m, "root", txn(all...)))
}

func denial(err error) bool {
	return errors.Is(err, access.ErrPermissionDenied) || errors.Is(err, access.ErrUserEmpty) ||
		errors.Is(err, access.ErrOldRevision) || errors.Is(err, access.ErrUserNotFound)
}

// TestOldRevision checks that a caller that logged in before users or roles changed must log in
// again. With access control disabled, every command is allowed.
func TestOldRevision(t *testing.T) {
	m := tenants(t)
	old := as(m, "alice", &Put{Key: "a"})
	mustApply(t, m, as(m, "root", &RoleAdd{"x"}))
	if r := apply(t, m, old); !errors.Is(r.Err, access.ErrOldRevision) {
		t.Errorf("after a change: %v", r.Err)
	}
	mustApply(t, m, as(m, "root", &AuthDisable{}))
	for _, c := range []Command{old, old.Command, &By{Command: old.Command}} {
		mustApply(t, m, c)
	}
}

// model is a simple implementation of the rule for transactions: permission is required for all
// keys of all operations.
func model(c *Txn, may func(access.Kind, string, string) bool) bool {
	ok := true
	for _, x := range c.Compare {
		ok = ok && may(access.Read, x.Key, x.End)
	}
	for _, op := range append(append([]Op(nil), c.Then...), c.Else...) {
		switch {
		case op.Put != nil:
			ok = ok && may(access.Write, op.Put.Key, "") &&
				(!op.Put.PrevKV || may(access.Read, op.Put.Key, ""))
		case op.Delete != nil:
			ok = ok && may(access.Write, op.Delete.Key, op.Delete.End) &&
				(!op.Delete.PrevKV || may(access.Read, op.Delete.Key, op.Delete.End))
		case op.Range != nil:
			ok = ok && may(access.Read, op.Range.Key, op.Range.End)
		default:
			ok = ok && model(op.Txn, may)
		}
	}
	return ok
}

// randomTree returns a random transaction, mostly over keys that alice can use.
func randomTree(rng *rand.Rand, depth int) *Txn {
	c := &Txn{}
	key := func() (string, string) {
		if rng.IntN(20) == 0 {
			return []string{"b", "c", "d", ""}[rng.IntN(4)], []string{"", "b", "d", "\x00"}[rng.IntN(4)]
		}
		return []string{"a", "a1", "aa"}[rng.IntN(3)], []string{"", "", "b"}[rng.IntN(3)]
	}
	for range rng.IntN(3) {
		k, end := key()
		c.Compare = append(c.Compare, Compare{Key: k, End: end})
	}
	for _, ops := range [...]*[]Op{&c.Then, &c.Else} {
		for range rng.IntN(3) {
			k, end := key()
			prev := rng.IntN(2) == 0
			switch n := rng.IntN(4); {
			case n == 0:
				*ops = append(*ops, Op{Put: &Put{Key: k, PrevKV: prev}})
			case n == 1:
				*ops = append(*ops, Op{Delete: &DeleteRange{Key: k, End: end, PrevKV: prev}})
			case n == 2 || depth == 0:
				*ops = append(*ops, Op{Range: &Range{Key: k, End: end}})
			default:
				*ops = append(*ops, Op{Txn: randomTree(rng, depth-1)})
			}
		}
	}
	return c
}

// TestConjunction checks that a transaction is allowed if and only if all its operations are,
// nested or not and in both branches. In etcd, nested operations were not checked (CVE-2026-33343).
func TestConjunction(t *testing.T) {
	m := tenants(t)
	rng := rand.New(rand.NewPCG(17, 17))
	allowed, trees := 0, tier.Budget(20_000, 1_000_000)
	for n := range trees {
		c := as(m, "alice", randomTree(rng, 4))
		want := model(c.Command.(*Txn), func(what access.Kind, key, end string) bool {
			return m.meta.access.Check(c.Caller, what, keyrange.Range{Key: key, End: end}) == nil
		})
		if err := m.denied(c); (err == nil) != want {
			t.Fatalf("tree %d, %+v: %v, allowed should be %v", n, c.Command, err, want)
		}
		if want {
			allowed++
		}
	}
	if allowed < trees/10 || allowed > trees-trees/10 {
		t.Errorf("%d of %d are allowed: the test tells little", allowed, trees)
	}
}

// TestSessionOfAnother checks that a session belongs to its user. No other user receives its
// recorded responses, even after a restore.
func TestSessionOfAnother(t *testing.T) {
	m := tenants(t)
	s := mustApply(t, m, as(m, "alice", &OpenSession{Nonce: 1})).(Session)
	put := &Once{Session: s, Number: 1, Command: &Put{Key: "a", PrevKV: true}}
	mustApply(t, m, as(m, "alice", put))
	for _, m := range []*Machine{m, restored(t, m)} {
		for _, user := range []string{"root", "bob", ""} {
			if r := apply(t, m, as(m, user, put)); r.Err == nil || r.Repeated {
				t.Errorf("%q is answered: %+v", user, r)
			}
			if r, ok := m.Repeated(as(m, user, put)); ok {
				t.Errorf("%q is told: %+v", user, r)
			}
		}
		if _, ok := m.Repeated(as(m, "alice", put)); !ok {
			t.Error("alice is not told")
		}
		if r := apply(t, m, as(m, "alice", put)); !r.Repeated {
			t.Errorf("alice is answered: %+v", r)
		}
	}
}

// TestMembershipNamesItsCaller checks that membership changes are authorized when they are applied.
// The log records their caller. A change without a caller is anonymous.
func TestMembershipNamesItsCaller(t *testing.T) {
	for _, c := range []Command{
		&AddMember{Member{ID: 1}}, &RemoveMember{ID: 1}, &PromoteMember{ID: 1},
	} {
		by := OnBehalf(access.Caller{User: "u", Revision: 7}, c)
		if _, ok := by.(*By); !ok || !Membership(by) || !Readable(by) {
			t.Errorf("%T becomes %T, membership %v, readable %v", c, by, Membership(by), Readable(by))
		}
		groups, err := DecodeEntry(encode(by))
		if err != nil || !reflect.DeepEqual(groups[0].Commands[0], by) {
			t.Errorf("%T is read as %+v, %v", c, groups, err)
		}
		if r := apply(t, tenants(t), c); !errors.Is(r.Err, access.ErrUserEmpty) {
			t.Errorf("%T without a caller: %v", c, r.Err)
		}
	}
}

// TestInternalCommandsNotWrapped checks that commands that clients cannot issue cannot be wrapped
// in By. In ZooKeeper, a server-internal deletion was not checked when a client sent it
// (CVE-2026-79993).
func TestInternalCommandsNotWrapped(t *testing.T) {
	for _, c := range []Command{
		&Expire{}, &Checkpoint{}, &DropOrphans{}, &HashState{}, &StateHash{},
		&By{Command: &Put{}}, &Once{Command: &By{Command: &Put{}}},
	} {
		by := &By{Command: c}
		if Readable(by) {
			t.Errorf("%T may be proposed", c)
		}
		if groups, err := DecodeEntry(encode(by)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%T is read: %v, %v", c, groups, err)
		}
	}
}

// TestDeniedNotStartedAhead checks that a large deletion is not started ahead of its entry if it
// will be denied.
func TestDeniedNotStartedAhead(t *testing.T) {
	m := tenants(t)
	m.cfg.AheadKeys = 2
	for i := range 9 {
		mustApply(t, m, as(m, "root", &Put{Key: fmt.Sprint("a", i)}))
	}
	all := &DeleteRange{Key: "a", End: "b"}
	for _, c := range []Command{all, as(m, "bob", all), as(m, "", all)} {
		if m.Ahead(c) {
			t.Errorf("%+v is done ahead", c)
		}
	}
	if !m.Ahead(as(m, "alice", all)) {
		t.Error("what may be done is not done ahead")
	}
	mustApply(t, m, as(m, "alice", all))
}
