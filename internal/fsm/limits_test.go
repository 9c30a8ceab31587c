package fsm

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
)

// TestTooMuchWorkAtTheLimit checks that a transaction that takes too much work is rejected for that
// reason and not because of a limit. Its plan is incomplete, so it cannot be validated.
func TestTooMuchWorkAtTheLimit(t *testing.T) {
	m := tenants(t)
	mustApply(t, m, as(m, "root", &SetLimits{
		access.Holder{Kind: access.OfUser, Name: "alice"},
		[]access.LimitChange{{What: access.Leases, Most: 1}},
	}))
	mustApply(t, m, as(m, "alice", &Grant{Terms: lease.Terms{ID: 1, TTL: 5000}}))
	var fill Txn
	for i := range 2000 {
		fill.Then = append(fill.Then, Op{Put: &Put{Key: fmt.Sprint("a", i)}})
	}
	mustApply(t, m, as(m, "root", &fill))
	another := []Op{{Txn: &Txn{}}, {Grant: &Grant{Terms: lease.Terms{ID: 2, TTL: 5000}}}}
	all := slices.Repeat([]Op{{Range: &Range{Key: "a", End: "b"}}}, 600)
	limit := new(access.LimitError)
	for large, c := range map[bool]*Txn{
		false: {Then: slices.Concat(all[:10], another)}, true: {Then: slices.Concat(all, another)},
	} {
		// Sorting alone can exceed the budget, because other commands must wait while it runs.
		if large {
			sorted := Op{Range: &Range{Key: "a", End: "b", Options: mvcc.RangeOptions{SortBy: mvcc.ByMod}}}
			r := apply(t, m, as(m, "alice", &Txn{Then: append(slices.Repeat([]Op{sorted}, 20), another...)}))
			if !errors.Is(r.Err, ErrTxnTooLarge) {
				t.Errorf("sorted too often: %v", r.Err)
			}
		}
		r := apply(t, m, as(m, "alice", c))
		if errors.Is(r.Err, ErrTxnTooLarge) != large || errors.As(r.Err, &limit) == large {
			t.Errorf("too much work %v: %v", large, r.Err)
		}
	}
}

// TestRefreshAtTheLimit checks that a user at its limit of leases can refresh a key with a TTL, but
// cannot get a second lease this way.
func TestRefreshAtTheLimit(t *testing.T) {
	refresh := func(id lease.ID, key string) []Op {
		c := putBound(key, id, 5000)
		c.Then[1].Put.PrevKV = false
		return c.Then
	}
	on := func(key string, id lease.ID) []Op { return []Op{{Put: &Put{Key: key, Lease: id}}} }
	twice := slices.Concat(refresh(11, "a"), refresh(12, "a"))
	for name, tt := range map[string]struct {
		ops  []Op
		fits bool
	}{
		"once more": {refresh(11, "a"), true},
		"after its deletion": {
			append([]Op{{Delete: &DeleteRange{Key: "a"}}}, refresh(11, "a")...), true,
		},
		"another key":              {refresh(11, "a1"), false},
		"on the lease that it has": {on("a", 1), true},
		"a key of nobody's lease":  {refresh(11, "a2"), false},
		"twice, another's between": {
			slices.Concat(refresh(11, "a"), on("c", 2), refresh(12, "a")), false,
		},
		"twice":                   {twice, false},
		"a key of bob's":          {refresh(11, "c"), false},
		"on a lease of another's": {append(refresh(11, "a"), refresh(12, "c")...), false},
		"and back":                {append(refresh(11, "a"), on("a", 1)...), false},
		"on the old one first":    {append(on("a", 1), refresh(11, "a")...), false},
		"with a lease that stays": {
			append(refresh(11, "a"), Op{Grant: &Grant{Terms: lease.Terms{ID: 12, TTL: 5000}}}), false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := tenants(t)
			mustApply(t, m, as(m, "root", &AuthDisable{}))
			mustApply(t, m, &Txn{Then: refresh(3, "a2")})
			mustApply(t, m, &AuthEnable{})
			mustApply(t, m, as(m, "root", &UserGrantRole{"alice", "c"}))
			mustApply(t, m, as(m, "alice", &Txn{Then: refresh(1, "a")}))
			mustApply(t, m, as(m, "bob", &Txn{Then: refresh(2, "c")}))
			has := m.use("alice")
			mustApply(t, m, as(m, "root", &SetLimits{
				access.Holder{Kind: access.OfUser, Name: "alice"},
				[]access.LimitChange{{What: access.Leases, Most: has.Leases}},
			}))
			limit := new(access.LimitError)
			r := apply(t, m, as(m, "alice", &Txn{Then: tt.ops}))
			if errors.As(r.Err, &limit); tt.fits != (r.Err == nil) || !tt.fits && limit.Limit != 1 {
				t.Errorf("%v", r.Err)
			}
			if got := m.use("alice"); got.Leases > 1 {
				t.Errorf("alice has %+v", got)
			}
		})
	}
}

// TestExactLimits checks that a command that reaches a limit exactly is allowed, and that it is
// rejected if the limit is one byte lower. A put is always charged as if its key were new.
func TestExactLimits(t *testing.T) {
	for name, tt := range map[string]struct {
		by string // the caller
		of string // the user with the limit
		c  Command
	}{
		"new":             {"alice", "alice", &Put{Key: "a1"}},
		"another's":       {"alice", "alice", &Put{Key: "c", Value: []byte("v")}},
		"another's value": {"alice", "alice", &Put{Key: "c", IgnoreValue: true}},
		"grant":           {"alice", "alice", &Grant{Terms: lease.Terms{ID: 9, TTL: 5000}}},
		"in a transaction": {"alice", "alice", &Txn{Then: []Op{
			{Put: &Put{Key: "a1"}}, {Put: &Put{Key: "a2"}},
		}}},
		"given":         {"root", "bob", &HandOver{ID: 1, Token: 1, Principal: "bob"}},
		"given, longer": {"root", "bob", &HandOver{ID: 1, Token: 1, Owner: "long", Principal: "bob"}},
		"longer owner":  {"root", "alice", &HandOver{ID: 1, Token: 1, Owner: "long"}},
	} {
		for less := range int64(2) {
			m := tenants(t)
			mustApply(t, m, as(m, "root", &UserGrantRole{"alice", "c"}))
			mustApply(t, m, as(m, "alice", &Grant{Terms: lease.Terms{ID: 1, TTL: 5000}}))
			mustApply(t, m, as(m, "alice", &Put{Key: "a", Value: make([]byte, 20)}))
			mustApply(t, m, as(m, "bob", &Put{Key: "c", Value: make([]byte, 30)}))
			twin := restored(t, m)
			mustApply(t, twin, as(m, tt.by, tt.c))
			mustApply(t, m, as(m, "root", &SetLimits{
				access.Holder{Kind: access.OfUser, Name: tt.of},
				[]access.LimitChange{{What: access.Bytes, Most: twin.use(tt.of).Bytes - less}},
			}))
			limit := new(access.LimitError)
			r := apply(t, m, as(m, tt.by, tt.c))
			if errors.As(r.Err, &limit) != (less > 0) || r.Err != nil && less == 0 {
				t.Errorf("%s, with %d bytes less: %v", name, less, r.Err)
			}
		}
	}
}

// TestLimitsInTransactions checks that space freed by a transaction cannot be used within the same
// transaction, except by a lease that replaces another. Leases without a principal are not limited.
func TestLimitsInTransactions(t *testing.T) {
	m := tenants(t)
	mustApply(t, m, as(m, "root", &AuthDisable{}))
	mustApply(t, m, &Grant{Terms: lease.Terms{ID: 1, TTL: 5000}})
	mustApply(t, m, &AuthEnable{})
	mustApply(t, m, as(m, "alice", &Put{Key: "a", Value: make([]byte, 500)}))
	mustApply(t, m, as(m, "root", &UserGrantRole{"bob", "a"}))
	mustApply(t, m, as(m, "bob", putBound("c", 2, 5000)))
	for _, c := range []*SetLimits{
		{access.Holder{}, []access.LimitChange{{What: access.Bytes, Most: 10}}},
		{access.Holder{Kind: access.OfUser, Name: "alice"}, []access.LimitChange{
			{What: access.Bytes, Most: m.use("alice").Bytes},
		}},
		{access.Holder{Kind: access.OfUser, Name: "bob"}, []access.LimitChange{
			{What: access.Bytes, Most: access.NoLimit}, {What: access.Leases, Most: 1},
		}},
	} {
		mustApply(t, m, as(m, "root", c))
	}
	limit := new(access.LimitError)
	r := apply(t, m, as(m, "alice", &Txn{Then: []Op{
		{Delete: &DeleteRange{Key: "a"}}, {Put: &Put{Key: "a1"}},
	}}))
	if !errors.As(r.Err, &limit) {
		t.Errorf("less, and more: %v", r.Err)
	}
	mustApply(t, m, as(m, "root", &HandOver{ID: 1, Token: 1, Owner: "a much longer one"}))
	next := putBound("c", 3, 5000)
	given := lease.Terms{ID: 4, TTL: 5000, Principal: "bob"}
	next.Then = append(next.Then, Op{Grant: &Grant{Terms: given}})
	mustApply(t, m, as(m, "root", next))
}

// TestNoSpaceRefusalNotRemembered checks that if a numbered command is rejected for lack of space,
// or because of a limit, a retry succeeds once there is space.
func TestNoSpaceRefusalNotRemembered(t *testing.T) {
	for _, limited := range []bool{true, false} {
		m := tenants(t)
		s := mustApply(t, m, as(m, "alice", &OpenSession{Nonce: 5})).(Session)
		room := func(matched bool) {
			most := map[bool]int64{true: 1 << 20, false: 1}[matched]
			if limited {
				mustApply(t, m, as(m, "root", &SetLimits{
					access.Holder{Kind: access.OfUser, Name: "alice"},
					[]access.LimitChange{{What: access.Bytes, Most: most}},
				}))
				return
			}
			m.AddMember(Member{ID: 1, Quota: most})
		}
		room(false)
		put := as(m, "alice", &Once{s, 1, 0, &Put{Key: "a"}})
		for range 2 {
			if r := apply(t, m, put); r.Err == nil || r.Repeated {
				t.Fatalf("limited %v: without room: %+v", limited, r)
			}
		}
		room(true)
		if r := apply(t, m, as(m, "alice", &Once{s, 1, 0, &Put{Key: "a"}})); r.Err != nil {
			t.Errorf("limited %v: with room: %v", limited, r.Err)
		}
	}
}

// TestAttachSharesValue checks that attaching or detaching a key does not need space for a second
// copy of its value if the value is certain to be stored only once.
func TestAttachSharesValue(t *testing.T) {
	keep := func(id lease.ID) Op { return Op{Put: &Put{Key: "a", IgnoreValue: true, Lease: id}} }
	sameLease := &Put{Key: "a", IgnoreValue: true, IgnoreLease: true}
	for name, c := range map[string]struct {
		c    Command
		fits bool
	}{
		"detach":            {keep(0).Put, true},
		"attach":            {keep(2).Put, true},
		"in a transaction":  {&Txn{Then: []Op{keep(2)}}, true},
		"on its lease":      {keep(1).Put, false},
		"on the same lease": {sameLease, false},
		"to and fro":        {&Txn{Then: []Op{keep(2), keep(1)}}, false},
		"twice":             {&Txn{Then: []Op{keep(2), {Txn: &Txn{Then: []Op{keep(2)}}}}}, false},
		"behind a value": {
			&Txn{Then: []Op{{Put: &Put{Key: "a", Lease: 2}}, keep(2)}}, false,
		},
	} {
		for _, limited := range []bool{true, false} {
			m := tenants(t)
			for id := range lease.ID(2) {
				mustApply(t, m, as(m, "alice", &Grant{Terms: lease.Terms{ID: id + 1, TTL: 5000}}))
			}
			put := &Put{Key: "a", Value: make([]byte, 10_000), Lease: 1}
			mustApply(t, m, as(m, "alice", put))
			most := m.use("alice").Bytes + 1000
			if limited {
				mustApply(t, m, as(m, "root", &SetLimits{
					access.Holder{Kind: access.OfUser, Name: "alice"},
					[]access.LimitChange{{What: access.Bytes, Most: most}},
				}))
			} else {
				m.AddMember(Member{ID: 1})
				m.AddMember(Member{ID: 1, Quota: m.bytes().Sum() + 1000})
			}
			r := apply(t, m, as(m, "alice", c.c))
			if (r.Err == nil) != c.fits {
				t.Errorf("%s, limited %v: %v", name, limited, r.Err)
			}
			if got := m.use("alice").Bytes; limited && got > most ||
				!limited && m.bytes().Sum() > m.meta.quota {
				t.Errorf("%s, limited %v: the bound is exceeded: %d of %d", name, limited, got, most)
			}
		}
	}
}
