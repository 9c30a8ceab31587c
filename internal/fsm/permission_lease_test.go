package fsm

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"leasehold.dev/internal/access"
	"leasehold.dev/lease"
)

// holders returns a state with access control and several leases.
//
// For the names [x/, x0), alice has permission to hold, bob to see, and carol to manage. Dave has
// no role. All of them except dave can write keys.
//
//   - lease 1: principal alice, no name, key k1
//   - lease 2: principal alice, name x/2
//   - lease 3: no principal, no name
//   - lease 4: principal bob, name y/4, which only root can hold
//   - lease 5: no principal, name x/5
//   - lease 6: no principal, no name, key k6
func holders(t testing.TB) *Machine {
	t.Helper()
	m := New(Config{})
	for _, c := range []Command{
		&UserAdd{Name: "root", NoPassword: true}, &UserGrantRole{"root", "root"}, &AuthEnable{},
	} {
		mustApply(t, m, c)
	}
	for user, kind := range map[string]access.Kind{
		"alice": access.Hold, "bob": access.See, "carol": access.Manage, "dave": 0,
	} {
		mustApply(t, m, as(m, "root", &UserAdd{Name: user, NoPassword: true}))
		if kind == 0 {
			continue
		}
		for _, c := range []Command{
			&RoleAdd{user}, &UserGrantRole{user, user},
			&RoleGrant{user, access.Permission{Kind: kind, Key: "x/", End: "x0"}},
			&RoleGrant{user, access.Permission{Kind: access.ReadWrite, Key: "a", End: "\x00"}},
		} {
			mustApply(t, m, as(m, "root", c))
		}
	}
	for _, terms := range []lease.Terms{
		{ID: 1, Principal: "alice"},
		{ID: 2, Principal: "alice", Name: "x/2", Secret: lease.Secret{2}},
		{ID: 3},
		{ID: 4, Principal: "bob", Name: "y/4"},
		{ID: 5, Name: "x/5"},
		{ID: 6},
	} {
		terms.TTL = 1000
		mustApply(t, m, as(m, "root", &Grant{Terms: terms}))
	}
	mustApply(t, m, as(m, "root", &Put{Key: "k6", Lease: 6}))
	mustApply(t, m, as(m, "root", &Put{Key: "k1", Lease: 1}))
	return m
}

// TestPermitLeases checks which users can use a lease. A lease without a name belongs to its
// principal. A lease with a name can be used by all users with permission to hold the name. Root
// has permission for all but two of the commands in this table.
func TestPermitLeases(t *testing.T) {
	grant := func(name, principal string) Command {
		return &Grant{Terms: lease.Terms{ID: 9, TTL: 1000, Name: name, Principal: principal}}
	}
	in := func(op Op) Command { return &Txn{Else: []Op{op}} }
	if_ := func(c Compare) Command { return &Txn{Compare: []Compare{c}} }
	for name, c := range map[string]struct {
		c   Command
		may string
	}{
		"grant":                   {grant("", ""), "alice bob carol dave"},
		"grant to alice":          {grant("", "alice"), "alice"},
		"grant of a name":         {grant("x/9", ""), "alice carol"},
		"of one that is not mine": {grant("z", ""), ""},
		"of a name to alice":      {grant("x/9", "alice"), "alice carol"},
		"of a name to bob":        {grant("x/9", "bob"), "carol"},
		"revoke":                  {&Revoke{ID: 1}, "alice"},
		"revoke a name":           {&Revoke{Name: "x/2"}, "alice carol"},
		"revoke nobody's":         {&Revoke{ID: 3}, "alice bob carol dave"}, // like etcd
		"revoke without the name": {&Revoke{ID: 4}, ""},
		"revoke nobody's name":    {&Revoke{ID: 5}, "carol"},
		"change the TTL":          {&ChangeTTL{ID: 1, Token: 1, TTL: 7}, "alice"},
		"change that of a name":   {&ChangeTTL{ID: 2, Token: 2, TTL: 7}, "alice carol"},
		"change nobody's":         {&ChangeTTL{ID: 3, Token: 3, TTL: 7}, ""},
		"hand over":               {&HandOver{ID: 1, Token: 1, Owner: "x"}, "alice"},
		"hand a name over":        {&HandOver{Name: "x/2", Token: 2, Principal: "carol"}, "carol"},
		"hand it over to alice":   {&HandOver{Name: "x/2", Token: 2, Principal: "alice"}, "alice carol"},
		"hand over to who sees":   {&HandOver{Name: "x/2", Token: 2, Principal: "bob"}, ""},
		"hand over to nobody":     {&HandOver{ID: 1, Token: 1, Principal: "gone"}, ""},
		"hand over to dave":       {&HandOver{ID: 1, Token: 1, Principal: "dave"}, ""},
		"resume":                  {&Resume{ID: 2, Secret: lease.Secret{2}}, "alice carol"},
		"renew":                   {in(Op{Touch: &Touch{ID: 1}}), "alice"},
		"renew a name":            {in(Op{Touch: &Touch{Name: "x/2"}}), "alice carol"},
		"renew nobody's":          {in(Op{Touch: &Touch{ID: 3}}), "alice bob carol dave"},
		"renew nobody's keys":     {in(Op{Touch: &Touch{ID: 6}}), "alice bob carol"},
		"revoke nobody's keys":    {&Revoke{ID: 6}, "alice bob carol"},
		"renew without the name":  {in(Op{Touch: &Touch{ID: 4}}), ""},
		"put on":                  {&Put{Key: "k", Lease: 1}, "alice"},
		"put on a name":           {&Put{Key: "k", LeaseName: "x/2"}, "alice carol"},
		"put on nobody's":         {&Put{Key: "k", Lease: 3}, "alice bob carol"},
		"put without the name":    {&Put{Key: "k", Lease: 4}, ""},
		"move on":                 {&Put{Key: "k6", IgnoreValue: true, Lease: 1}, "alice"},
		"move on a name":          {&Put{Key: "k6", IgnoreValue: true, LeaseName: "x/2"}, "alice carol"},
		"move without the name":   {&Put{Key: "k6", IgnoreValue: true, Lease: 4}, ""},
		"move in it":              {in(Op{Put: &Put{Key: "k6", IgnoreValue: true, Lease: 1}}), "alice"},
		// To detach a key, or to attach it to a lease without a principal, only permission for the
		// key is required.
		"move off":     {&Put{Key: "k1", IgnoreValue: true}, "alice bob carol"},
		"move alice's": {&Put{Key: "k1", IgnoreValue: true, Lease: 3}, "alice bob carol"},
		"revoke in it": {in(Op{Revoke: &Revoke{ID: 1}}), "alice"},
		"grant in it":  {in(Op{Grant: grant("x/9", "alice").(*Grant)}), "alice carol"},
		"token": {
			if_(Compare{Target: TargetNameToken, Key: "x/2", Number: 2}), "alice bob carol",
		},
		"token of bob's":    {if_(Compare{Target: TargetNameToken, Key: "y/4"}), "bob"},
		"token of no lease": {if_(Compare{Target: TargetNameToken, Key: "y/5"}), ""},
		"lease of a name": {
			if_(Compare{Target: TargetLeaseName, Key: "k", Value: []byte("x/2")}), "alice bob carol",
		},
		"lease of a name of a key": {
			if_(Compare{Target: TargetLeaseName, Key: "A", Value: []byte("x/2")}), "",
		},
		"whether it is here": {if_(Compare{Target: TargetLeaseAlive, Number: 1}), "alice bob carol dave"},
	} {
		for _, user := range []string{"alice", "bob", "carol", "dave", "root"} {
			m := holders(t)
			want := access.ErrPermissionDenied
			if user == "root" || slices.Contains(strings.Fields(c.may), user) {
				want = nil
			}
			r := apply(t, m, as(m, user, c.c))
			if name == "hand over to who sees" || name == "hand over to nobody" {
				want = access.ErrPermissionDenied // this applies to root as well
			}
			if !errors.Is(r.Err, want) || (r.Err == nil) != (want == nil) {
				t.Errorf("%s by %s: %v, not %v", name, user, r.Err, want)
			}
		}
	}
}

// TestRequestOfAnother checks that a request ID belongs to its user. Another user that reuses the
// ID does not receive the lease.
func TestRequestOfAnother(t *testing.T) {
	m := holders(t)
	grant := func(id lease.ID, user string) Result {
		return apply(t, m, as(m, user, (&Grant{Terms: lease.Terms{
			ID: id, TTL: 1000, RequestID: "r", Principal: user,
		}}).Repeatable()))
	}
	if r := grant(9, "alice"); r.Err != nil {
		t.Fatal(r.Err)
	}
	if r := grant(9, "bob"); !errors.Is(r.Err, lease.ErrExists) {
		t.Errorf("bob is told of alice's lease: %+v", r)
	}
	m = restored(t, m)
	if r := grant(9, "alice"); r.Err != nil {
		t.Errorf("alice is not told of hers: %v", r.Err)
	}
	if info, _ := m.lessor.Lookup(9); info.Principal != "alice" {
		t.Errorf("lease 9 belongs to %q after a restore", info.Principal)
	}
}

// TestNameTakenAway checks that a user that loses permission to hold a name can no longer use its
// lease with that name. A role has separate permissions for keys and names in the same range.
func TestNameTakenAway(t *testing.T) {
	m := holders(t)
	mustApply(t, m, as(m, "root", &RoleGrant{"alice", access.Permission{
		Kind: access.Read, Key: "x/", End: "x0",
	}}))
	mustApply(t, m, as(m, "alice", &ChangeTTL{ID: 2, Token: 2, TTL: 7}))
	mustApply(t, m, as(m, "root", &RoleRevoke{Role: "alice", Key: "x/", End: "x0", Names: true}))
	for _, c := range []Command{
		&ChangeTTL{ID: 2, Token: 2, TTL: 7}, &Revoke{ID: 2}, &Resume{ID: 2, Secret: lease.Secret{2}},
	} {
		if r := apply(t, m, as(m, "alice", c)); !errors.Is(r.Err, access.ErrPermissionDenied) {
			t.Errorf("%T: %v", c, r.Err)
		}
	}
	r, _ := m.meta.access.Role("alice")
	if len(r.Permissions) != 2 {
		t.Errorf("the permissions on keys are %+v", r.Permissions)
	}
}

// TestMayRenew checks that if a member can decide about a renewal quickly, it decides as the log
// would. Otherwise, it leaves the renewal undecided.
func TestMayRenew(t *testing.T) {
	m := holders(t)
	for _, of := range []struct {
		id   lease.ID
		name string
		keys int
	}{{10, "", fewKeys}, {11, "", fewKeys + 1}, {12, "x/12", fewKeys + 1}} {
		mustApply(t, m, as(m, "root", &Grant{Terms: lease.Terms{ID: of.id, TTL: 1000, Name: of.name}}))
		for i := range of.keys {
			mustApply(t, m, as(m, "root", &Put{Key: fmt.Sprint("k/", of.id, "/", i), Lease: of.id}))
		}
	}
	denied, yes := access.ErrPermissionDenied, error(nil)
	old := as(m, "alice", nil).Caller
	old.Revision--
	for name, c := range map[string]struct {
		id      lease.ID
		by      access.Caller
		decided bool
		want    error
	}{
		"an own one":                     {1, as(m, "alice", nil).Caller, true, yes},
		"another's":                      {1, as(m, "bob", nil).Caller, true, denied},
		"another's, by root":             {1, as(m, "root", nil).Caller, true, yes},
		"nobody's":                       {3, as(m, "dave", nil).Caller, true, yes},
		"nobody's, with a key of others": {6, as(m, "dave", nil).Caller, true, denied},
		"with a key that it may write":   {6, as(m, "bob", nil).Caller, true, yes},
		"with a few keys":                {10, as(m, "dave", nil).Caller, true, denied},
		"with many":                      {11, as(m, "dave", nil).Caller, false, yes},
		"many of a name":                 {12, as(m, "carol", nil).Caller, true, yes},
		"many of a name of others":       {12, as(m, "dave", nil).Caller, true, denied},
		"none":                           {99, as(m, "alice", nil).Caller, false, yes},
		"logged in before a change":      {1, old, false, yes},
		"not logged in":                  {3, access.Caller{}, true, access.ErrUserEmpty},
	} {
		decided, err := Authorizer{m.meta.access, c.by}.MayRenew(m.lessor, c.id)
		if decided != c.decided || !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: decided %v, %v; want %v, %v", name, decided, err, c.decided, c.want)
		}
	}
}

// TestMayTouch checks that if a lease has no principal, seeing it requires permission to read its
// keys, and holding it requires permission to write them. For other leases, keys are not checked.
func TestMayTouch(t *testing.T) {
	m := holders(t)
	forClients := access.Kind(0)
	no := func(needs access.Kind) error { forClients = needs; return errors.New("no") }
	for name, c := range map[string]struct {
		user       string
		what       access.Kind
		of         access.Lease
		want       bool
		forClients access.Kind
	}{
		"hold nobody's":       {"alice", access.Hold, access.Lease{}, false, access.Write},
		"see nobody's":        {"alice", access.See, access.Lease{}, false, access.Read},
		"hold as root":        {"root", access.Hold, access.Lease{}, true, 0},
		"hold an own one":     {"alice", access.Hold, access.Lease{Principal: "alice"}, true, 0},
		"see a name":          {"bob", access.See, access.Lease{Name: "x/1"}, true, 0},
		"hold a name":         {"bob", access.Hold, access.Lease{Name: "x/1"}, false, 0},
		"hold as nobody":      {"", access.Hold, access.Lease{}, false, 0},
		"hold as one unknown": {"gone", access.Hold, access.Lease{}, false, 0},
	} {
		forClients = 0
		err := Authorizer{m.meta.access, as(m, c.user, nil).Caller}.MayTouch(c.what, c.of, no)
		if (err == nil) != c.want || forClients != c.forClients {
			t.Errorf("%s: %v, asked for %v", name, err, forClients)
		}
	}
	alice := Authorizer{m.meta.access, as(m, "alice", nil).Caller}
	for keys, want := range map[string]bool{"": true, "a b": true, "A b": false, "a A": false} {
		err := alice.EachKey(slices.Values(strings.Fields(keys)))(access.Write)
		if (err == nil) != want {
			t.Errorf("to write each of %q: %v", keys, err)
		}
	}
}
