package fsm

import (
	"errors"
	"testing"

	"leasehold.dev/lease"
)

// A command names a lease by its name, and means the lease that has it when it is applied. With
// an ID, or a token, that lease must have these; a name of no lease is refused by that name.
func TestNamedLeases(t *testing.T) {
	secret := lease.Secret{1}
	put := func(id lease.ID, name string, token lease.Token) Command {
		return &Put{Key: "k", Lease: id, LeaseName: name, LeaseToken: token}
	}
	txn := func(ops ...Op) Command { return &Txn{Then: ops} }
	touch := func(name string, token lease.Token) Op {
		return Op{Touch: &Touch{Name: name, Token: token}}
	}
	for what, c := range map[string]struct {
		do   Command
		want error // lease.ErrNotFound stands for that very error
	}{
		"put":                  {put(0, "n", 0), nil},
		"put by both":          {put(1, "n", 0), nil},
		"put under the token":  {put(0, "n", 1), nil},
		"put by ID and token":  {put(1, "", 1), nil},
		"put, no such name":    {put(0, "m", 0), &UnnamedError{Name: "m"}},
		"put, another's name":  {put(2, "n", 0), &UnnamedError{Name: "n", ID: 2}},
		"put, another token":   {put(0, "n", 2), lease.ErrNotFound},
		"put by ID, another":   {put(1, "", 2), lease.ErrNotFound},
		"put on a delayed one": {put(0, "d", 0), lease.ErrNotFound},
		"put, no such key":     {&Put{Key: "x", LeaseName: "m", IgnoreValue: true}, ErrKeyNotFound},
		"revoke":               {&Revoke{Name: "n"}, nil},
		"revoke a delayed one": {&Revoke{Name: "d"}, nil},
		"revoke, other token":  {&Revoke{Name: "n", Token: 2}, lease.ErrNotFound},
		"revoke, no such name": {&Revoke{Name: "m"}, &UnnamedError{Name: "m"}},
		"revoke, another's":    {&Revoke{ID: 2, Name: "n"}, &UnnamedError{Name: "n", ID: 2}},
		"change TTL":           {&ChangeTTL{Name: "n", Token: 1, TTL: 7000}, nil},
		"change TTL, no name":  {&ChangeTTL{Name: "m", Token: 1, TTL: 7}, &UnnamedError{Name: "m"}},
		"change TTL, token":    {&ChangeTTL{Name: "n", Token: 2, TTL: 7000}, lease.ErrNotFound},
		"hand over":            {&HandOver{Name: "n", Token: 1, Owner: "o"}, nil},
		"hand over, no name":   {&HandOver{Name: "m", Token: 1}, &UnnamedError{Name: "m"}},
		"hand over, token":     {&HandOver{Name: "n", Token: 2}, lease.ErrNotFound},
		"resume":               {&Resume{Name: "n", Secret: secret}, nil},
		"resume, no name":      {&Resume{Name: "m", Secret: secret}, &UnnamedError{Name: "m"}},
		"resume, other secret": {&Resume{Name: "n"}, lease.ErrNotFound},
		"touch":                {txn(touch("n", 0)), nil},
		"touch, no such name":  {txn(touch("m", 0)), &UnnamedError{Name: "m"}},
		"touch, other token":   {txn(touch("n", 2)), lease.ErrNotFound},
	} {
		m := New(Config{})
		held := lease.Terms{ID: 1, TTL: 5000, Name: "n", Secret: secret}
		mustApply(t, m, &Grant{Terms: held})
		grant(t, m, 2)
		mustApply(t, m, &Grant{Terms: lease.Terms{ID: 3, TTL: 1000, Name: "d", LockDelay: 500}})
		expire(t, m, 3)
		mustApply(t, m, &Put{Key: "k"})
		before := hash(t, m)
		err := apply(t, m, c.do).Err
		var got, want *UnnamedError
		if errors.As(c.want, &want) {
			if !errors.As(err, &got) || *got != *want || !errors.Is(err, lease.ErrNotFound) {
				t.Errorf("%s: %v, want %v", what, err, want)
			}
		} else if err != c.want { //nolint:errorlint // the error itself, without a name
			t.Errorf("%s: %v, want %v", what, err, c.want)
		}
		if err != nil && hash(t, m) != before {
			t.Errorf("%s: refused, and changed something", what)
		}
		if m.mustBeSound(); t.Failed() {
			return
		}
	}
}

// A name stands for the lease that has it at its place in a transaction: one that was granted
// before, or none when that is over.
func TestNamesInTransactions(t *testing.T) {
	grantN := func(id lease.ID, name string) Op { return Op{Grant: &Grant{Terms: terms(id, name)}} }
	put := func(key, name string, token lease.Token) Op {
		return Op{Put: &Put{Key: key, LeaseName: name, LeaseToken: token}}
	}
	revoke := func(id lease.ID, name string) Op { return Op{Revoke: &Revoke{ID: id, Name: name}} }
	again := Op{Grant: &Grant{Terms: lease.Terms{ID: 7, TTL: 1, Name: "r", RequestID: "r"}}}
	for what, c := range map[string]struct {
		ops  []Op
		want lease.ID // of key k at the end, or 0 if it is all refused
	}{
		"as it is":                {[]Op{put("k", "n", 1)}, 1},
		"granted":                 {[]Op{grantN(9, "x"), put("k", "x", 0)}, 9},
		"granted, with a token":   {[]Op{grantN(9, "x"), put("k", "x", 3)}, 0},
		"before it is granted":    {[]Op{put("k", "x", 0), grantN(9, "x")}, 0},
		"taken over":              {[]Op{revoke(0, "n"), grantN(9, "n"), put("k", "n", 0)}, 9},
		"ended":                   {[]Op{revoke(1, ""), put("k", "n", 0)}, 0},
		"granted, ended":          {[]Op{grantN(9, "x"), revoke(0, "x"), put("k", "x", 0)}, 0},
		"another's":               {[]Op{grantN(9, "x"), revoke(1, "x"), put("k", "n", 0)}, 0},
		"granted again":           {[]Op{again, put("k", "r", 0)}, 2},
		"granted again, token":    {[]Op{again, put("k", "r", 2)}, 2},
		"granted again, both":     {[]Op{again, {Put: &Put{Key: "k", Lease: 7, LeaseName: "r"}}}, 2},
		"granted again, renewed":  {[]Op{again, {Touch: &Touch{Name: "r"}}, put("k", "n", 0)}, 1},
		"granted again and ended": {[]Op{again, revoke(0, "r"), put("k", "r", 0)}, 0},
	} {
		for _, limit := range []int{0, 3} {
			m := New(Config{Lease: lease.Config{MaxKeys: limit}})
			mustApply(t, m, &Grant{Terms: terms(1, "n")})
			mustApply(t, m, &Grant{Terms: lease.Terms{ID: 2, TTL: 1, Name: "r", RequestID: "r"}})
			before := hash(t, m)
			r := apply(t, m, &Txn{Then: c.ops})
			if (r.Err == nil) != (c.want != 0) || m.lessor.LeaseOf("k") != c.want {
				t.Errorf("%s: on lease %d, %v", what, m.lessor.LeaseOf("k"), r.Err)
			}
			if r.Err != nil && (!errors.Is(r.Err, lease.ErrNotFound) || hash(t, m) != before) {
				t.Errorf("%s: refused with %v, or changed something", what, r.Err)
			}
			m.mustBeSound()
		}
	}
}

// A key is compared with the lease that has a name: it is never on the lease of a name that no
// lease has, also if it is on none.
func TestCompareLeaseName(t *testing.T) {
	m := New(Config{})
	mustApply(t, m, &Grant{Terms: terms(1, "n")})
	mustApply(t, m, &Put{Key: "a", Lease: 1})
	mustApply(t, m, &Put{Key: "b"})
	for _, c := range []struct {
		key, name string
		want      bool
	}{{"a", "n", true}, {"b", "n", false}, {"a", "m", false}, {"b", "m", false}, {"c", "m", false}} {
		for _, r := range []Relation{Equal, NotEqual} {
			cond := Compare{Key: c.key, Target: TargetLeaseName, Relation: r, Value: []byte(c.name)}
			txn := &Txn{Compare: []Compare{cond}}
			got := mustApply(t, m, txn).(*TxnResult).Succeeded
			if got != (c.want == (r == Equal)) || txn.ReadOnly() {
				t.Errorf("key %s, name %s, relation %d: %v", c.key, c.name, r, got)
			}
		}
	}
}

// A refusal that tells a name is told again from a snapshot, as other refusals are.
func TestNamedRefusalIsRemembered(t *testing.T) {
	m := New(Config{})
	once := &Once{open(t, m, 5), 1, 0, &Revoke{ID: 3, Name: "n"}}
	first := apply(t, m, once)
	again := apply(t, restored(t, m), once)
	if first.Err.Error() != `lease: not found: lease 0000000000000003 does not have the name "n"` ||
		again.Err == nil || again.Err.Error() != first.Err.Error() || !again.Repeated {
		t.Errorf("%v, and from a snapshot %v", first.Err, again.Err)
	}
}
