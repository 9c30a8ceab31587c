package fsm

import (
	"errors"
	"slices"
	"testing"

	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// tokens returns the tokens of all orphans.
func tokens(m *Machine) (list []lease.Token) {
	for o := range m.AllHolds().Orphans() {
		list = append(list, o.Lease.Token)
	}
	return list
}

// TestOrphanOutlivesLease (C1) checks that a revocation immediately ends the lease with its name
// and keys. Its holds remain as an orphan until the leader knows that the cache is empty. The
// orphan survives a snapshot and the reuse of the ID and the name. It counts toward the owner's
// holds and toward the time that a write may have to wait.
func TestOrphanOutlivesLease(t *testing.T) {
	m := New(Config{})
	a := []keyrange.Range{{Key: "a", End: "c"}, {Key: "d"}}
	grant := owned(1, "ann", a...)
	grant.Terms.Name, grant.Terms.TTL = "n", 4000
	first := mustApply(t, m, grant).(*lease.Info)
	mustApply(t, m, &Put{Key: "k", Lease: 1})
	picture := m.AllHolds()
	mustApply(t, m, &Revoke{ID: 1})
	if _, ok := m.lessor.Lookup(1); ok || m.store.Get("k") != nil {
		t.Fatal("the lease is there")
	}
	if _, ok := picture.orphanOf(first.Token); ok || len(picture.held(1)) != 2 {
		t.Error("a picture of before has changed")
	}
	grant.Terms.TTL = 300
	second := mustApply(t, m, grant).(*lease.Info)
	mustApply(t, m, &Revoke{ID: 1})
	m.TakeHolds()
	m = restored(t, m)
	if got := tokens(m); !slices.Equal(got, []lease.Token{first.Token, second.Token}) {
		t.Fatalf("orphans of tokens %v", got)
	}
	o, _ := m.Orphan(first.Token)
	if !slices.Equal(o.Ranges, a) || o.Lease.TTL != 4000 || o.Lease.Name != "n" || o.Until != 0 {
		t.Errorf("%+v", o)
	}
	if m.CacheTTL() != 4000 || m.holds.owned["ann"] != 4 || len(m.TakeHolds()) > 0 {
		t.Errorf("writes wait for %d ms, %v is counted", m.CacheTTL(), m.holds.owned)
	}
	drop := &DropOrphans{Tokens: []lease.Token{first.Token, 77}}
	mustApply(t, m, drop)
	mustApply(t, m, drop)
	if got := m.TakeHolds(); !slices.Equal(got, []Holding{{1, first.Token}}) || m.CacheTTL() != 300 {
		t.Errorf("%v have changed, writes wait for %d ms", got, m.CacheTTL())
	}
	if m = mustRestoreBackup(t, m, Restoration{}); len(tokens(m)) > 0 || m.CacheTTL() != 0 {
		t.Error("orphans of a generation that was restored away go on")
	}
}

// TestOrphanKnowsItsEnd checks that on a primary, an orphan ends when its lease would have expired,
// even after a hand-over.
func TestOrphanKnowsItsEnd(t *testing.T) {
	m := New(Config{})
	m.lessor.Promote(0)
	info := mustApply(t, m, held(1, "", keyrange.Range{Key: "a"})).(*lease.Info)
	until, _ := m.lessor.Expiry(1)
	m.lessor.Advance(100)
	mustApply(t, m, &HandOver{ID: 1, Token: info.Token, Owner: "o"})
	if o, _ := m.Orphan(info.Token); o.Until != until {
		t.Errorf("until %d, want %d", o.Until, until)
	}
	if now, _ := m.lessor.Expiry(1); now <= until {
		t.Errorf("the lease goes on until %d", now)
	}
}

// TestBoundLeaseLeavesOrphan (C1) checks that a lease that ends with its key leaves an orphan, as a
// revoked lease does.
func TestBoundLeaseLeavesOrphan(t *testing.T) {
	m := New(Config{})
	g := held(1, "", keyrange.Range{Key: "a"})
	g.Terms.Bound = true
	mustApply(t, m, &Txn{Then: []Op{{Grant: g}, {Put: &Put{Key: "k", Lease: 1}}}})
	mustApply(t, m, &DeleteRange{Key: "k"})
	if _, ok := m.lessor.Lookup(1); ok || len(tokens(m)) != 1 {
		t.Errorf("orphans of tokens %v", tokens(m))
	}
}

// TestBadOrphan checks that Restore rejects a snapshot with an invalid orphan.
func TestBadOrphan(t *testing.T) {
	m := New(Config{})
	mustApply(t, m, held(1, "", keyrange.Range{Key: "a"}))
	mustApply(t, m, &Revoke{ID: 1})
	o := m.holds.orphans[tokens(m)[0]]
	for name, spoil := range map[string]func(){
		"without ranges": func() { m.holds.orphans[o.Lease.Token] = Orphan{Lease: o.Lease} },
		"twice":          func() { m.holds.orphans[77] = o },
	} {
		spoil()
		if _, err := restoreChunks(Config{}, chunks(t, m)...); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
		m.holds.orphans[o.Lease.Token] = o
		delete(m.holds.orphans, 77)
	}
}
