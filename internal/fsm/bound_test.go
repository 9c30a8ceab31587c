package fsm

import (
	"errors"
	"slices"
	"testing"

	"leasehold.dev/lease"
)

// TestBoundEndsWithItsKey checks that a bound lease ends, with an event, in the same step as any
// command that deletes its key or detaches the key from it.
func TestBoundEndsWithItsKey(t *testing.T) {
	revoke := &Revoke{ID: 7, By: "me"}
	gone := Op{Delete: &DeleteRange{Key: "k"}}
	const byKey = `3: lease 7 revoked "key" at 3`
	for name, c := range map[string]struct {
		command Command
		events  []string // events after the two grants
	}{
		"deleted":     {&DeleteRange{Key: "k"}, []string{byKey}},
		"overwritten": {&Put{Key: "k"}, []string{byKey}},
		"moved":       {&Put{Key: "k", Lease: 1}, []string{byKey}},
		"attached":    {&Put{Key: "k", Lease: 1, IgnoreValue: true}, []string{byKey}},
		"detached":    {&Put{Key: "k", IgnoreValue: true}, []string{byKey}},
		"put again": {putBound("k", 8, 9), []string{
			`3: lease 8 granted "" at 3`, `4: lease 7 revoked "key" at 3`,
		}},
		"once": {&Once{Session{1, 5}, 1, 0, &DeleteRange{Key: "k"}}, []string{byKey}},
		"in a transaction": {&Txn{Then: []Op{
			{Put: &Put{Key: "a"}},
			{Txn: &Txn{Then: []Op{{Delete: &DeleteRange{Key: "a", End: "z"}}}}},
			{Put: &Put{Key: "b"}},
		}}, []string{byKey}},
		"revoked": {revoke, []string{`3: lease 7 revoked "me" at 3`}},
		"deleted and revoked": {&Txn{Then: []Op{
			gone, {Revoke: revoke},
		}}, []string{`3: lease 7 revoked "me" at 3`}},
		"deleted and granted again": {&Txn{Then: []Op{
			gone, {Revoke: revoke}, {Grant: &Grant{Terms: terms(7, "n")}},
		}}, []string{`3: lease 7 revoked "me" at 3`, `4: lease 7 granted "" at 3`}},
		"not kept":     {&Put{Key: "k", IgnoreLease: true}, nil},
		"put on it":    {&Put{Key: "k", Lease: 7}, nil},
		"another key":  {&DeleteRange{Key: "l", End: "\x00"}, nil},
		"off and on":   {&Txn{Then: []Op{{Put: &Put{Key: "k"}}, {Put: &Put{Key: "k", Lease: 7}}}}, nil},
		"gone and on":  {&Txn{Then: []Op{gone, {Put: &Put{Key: "k", Lease: 7}}}}, nil},
		"then renewed": {&Txn{Then: []Op{gone, {Touch: &Touch{ID: 7}}}}, []string{byKey}},
	} {
		m := New(Config{})
		open(t, m, 5)
		grant(t, m, 1)
		mustApply(t, m, putBound("k", 7, 50))
		m = restored(t, m) // the snapshot must record that the lease is bound
		mustApply(t, m, c.command)
		if got := show(after(t, m, 2)); !slices.Equal(got, c.events) {
			t.Errorf("%s: events %q, want %q", name, got, c.events)
		}
		info, alive := m.lessor.Lookup(7)
		if ends := len(c.events) > 0; ends == (alive && info.Bound) {
			t.Errorf("%s: %+v, %v", name, info, alive)
		}
	}
}

// TestBound checks that no other key can be attached to a bound lease, and that it expires like any
// other lease.
func TestBound(t *testing.T) {
	for _, limit := range []int{0, 1, 5} {
		m := New(Config{Lease: lease.Config{MaxKeys: limit}})
		mustApply(t, m, putBound("k", 7, 50))
		info, _ := m.lessor.Lookup(7)
		if !info.Bound || info.TTL != 50 || m.lessor.LeaseOf("k") != 7 {
			t.Fatalf("%+v", info)
		}
		fresh := putBound("x", 8, 50)
		for name, c := range map[string]Command{
			"put":   &Put{Key: "l", Lease: 7},
			"once":  &Once{open(t, m, 5), 1, 0, &Put{Key: "l", Lease: 7}},
			"txn":   &Txn{Then: []Op{{Put: &Put{Key: "l", Lease: 7}}}},
			"freed": &Txn{Then: []Op{{Delete: &DeleteRange{Key: "k"}}, {Put: &Put{Key: "l", Lease: 7}}}},
			"new":   &Txn{Then: append(slices.Clone(fresh.Then), Op{Put: &Put{Key: "y", Lease: 8}})},
			"ended": &Txn{Then: []Op{
				{Revoke: &Revoke{ID: 7}}, {Txn: fresh}, {Put: &Put{Key: "y", Lease: 8}},
			}},
			"attached": &Txn{Then: []Op{{Put: &Put{Key: "k"}}, {Put: &Put{Key: "l", Lease: 7}}}},
		} {
			sum := hash(t, m)
			if _, once := c.(*Once); once {
				sum = 0 // the session records the response, so the hash changes
			}
			if r := apply(t, m, c); !errors.Is(r.Err, lease.ErrBound) {
				t.Errorf("%s: %v", name, r.Err)
			}
			if now := hash(t, m); sum != 0 && now != sum {
				t.Errorf("%s has changed something", name)
			}
		}
		var bounds *lease.TTLError
		if r := apply(t, m, putBound("k", 9, -1)); !errors.As(r.Err, &bounds) { // T24
			t.Errorf("a bad TTL: %v", r.Err)
		}
		if r := apply(t, m, putBound("l", 7, 9)); !errors.Is(r.Err, lease.ErrExists) {
			t.Errorf("an ID that is taken: %v", r.Err)
		}
		expire(t, m, 7)
		want := []string{`1: lease 7 granted "" at 2`, `2: lease 7 expired "" at 3`}
		if got := show(after(t, m, 0)); !slices.Equal(got, want) || value(m, "k") != "none" {
			t.Errorf("events %q, want %q", got, want)
		}
	}
}

// TestTransientLeaseHasNoEvents checks that a lease that is granted and ended in the same step has
// no events.
func TestTransientLeaseHasNoEvents(t *testing.T) {
	m := New(Config{})
	both := func(id lease.ID) []Op {
		return []Op{{Grant: &Grant{Terms: terms(id, "n")}}, {Revoke: &Revoke{ID: id}}}
	}
	last := m.lessor.LastToken()
	mustApply(t, m, &Txn{Then: append(both(1), both(1)...)})
	mustApply(t, m, &Txn{Then: []Op{{Txn: putBound("k", 3, 9)}, {Delete: &DeleteRange{Key: "k"}}}})
	mustApply(t, m, &Grant{Terms: lease.Terms{ID: 4, TTL: 9, Bound: true}})
	if got := after(t, m, 0); got != nil || m.lessor.LastToken() != last+4 || m.lessor.Len() != 0 {
		t.Errorf("events %q, last token %d", show(got), m.lessor.LastToken())
	}
	ops := append(both(1), Op{Grant: &Grant{Terms: terms(2, "n")}}, Op{Put: &Put{Key: "k", Lease: 2}})
	mustApply(t, m, &Txn{Then: ops})
	want := []string{`1: lease 2 granted "" at 3`}
	if got := show(after(t, m, 0)); !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
}
