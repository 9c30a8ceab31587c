package fsm

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

func held(id lease.ID, name string, holds ...keyrange.Range) *Grant {
	return &Grant{Terms: terms(id, name), Holds: holds}
}

// TestHoldsEndWithLease checks that holds end when the lease ends or gets another holder, whose
// cache is empty. They do not change otherwise.
func TestHoldsEndWithLease(t *testing.T) {
	ab := keyrange.Range{Key: "a", End: "b"}
	for _, c := range []struct {
		name string
		do   func(t *testing.T, m *Machine, token lease.Token)
		gone bool
	}{
		{"revoke", func(t *testing.T, m *Machine, _ lease.Token) {
			mustApply(t, m, &Revoke{ID: 1})
		}, true},
		{"revoke in a transaction", func(t *testing.T, m *Machine, _ lease.Token) {
			mustApply(t, m, &Txn{Then: []Op{{Revoke: &Revoke{ID: 1}}}})
		}, true},
		{"expire", func(t *testing.T, m *Machine, _ lease.Token) { expire(t, m, 1) }, true},
		{"hand over", func(t *testing.T, m *Machine, token lease.Token) {
			mustApply(t, m, &HandOver{ID: 1, Token: token, Owner: "o"})
		}, true},
		{"hand over with a wrong token", func(t *testing.T, m *Machine, token lease.Token) {
			apply(t, m, &HandOver{ID: 1, Token: token + 1})
		}, false},
		{"resume", func(t *testing.T, m *Machine, _ lease.Token) {
			mustApply(t, m, &Resume{ID: 1, Secret: lease.Secret{1}})
		}, true},
		{"resume with a wrong secret", func(t *testing.T, m *Machine, _ lease.Token) {
			apply(t, m, &Resume{ID: 1, Secret: lease.Secret{2}})
		}, false},
		{"renewed, changed, granted again", func(t *testing.T, m *Machine, token lease.Token) {
			mustApply(t, m, &Txn{Then: []Op{{Touch: &Touch{ID: 1}}}})
			mustApply(t, m, &ChangeTTL{ID: 1, Token: token, TTL: 700})
			apply(t, m, held(1, "", keyrange.Range{Key: "z"}))
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := New(Config{})
			g := owned(1, "ann", ab)
			g.Terms.Secret, g.Terms.LockDelay = lease.Secret{1}, 500
			info := mustApply(t, m, g).(*lease.Info)
			before := m.AllHolds()
			if got := m.TakeHolds(); !slices.Equal(got, []Holding{{1, info.Token}}) {
				t.Fatalf("changed: %v", got)
			}
			c.do(t, m, info.Token)
			got := m.Holds(1)
			if c.gone != (len(got) == 0) || c.gone != (len(m.TakeHolds()) > 0) {
				t.Errorf("holds %v", got)
			}
			o, orphaned := m.Orphan(info.Token)
			if orphaned != (c.gone && c.name != "expire") || orphaned &&
				(o.Lease.Owner != "ann" || !slices.Equal(o.Ranges, []keyrange.Range{ab})) {
				t.Errorf("orphan %v: %+v", orphaned, o)
			}
			if !slices.Equal(before.held(1), []keyrange.Range{ab}) {
				t.Errorf("a picture of before shows %v", before.held(1))
			}
			if hash(t, m) != hash(t, restored(t, m)) {
				t.Error("a snapshot does not keep it")
			}
		})
	}
}

// TestHoldsOfGrants checks that a retried grant keeps the holds of the first, and that a lease
// granted in a transaction has its own holds. A snapshot preserves them.
func TestHoldsOfGrants(t *testing.T) {
	m := New(Config{})
	first := held(1, "n", keyrange.Range{Key: "a"})
	first.Terms.RequestID = "r"
	again := held(2, "n", keyrange.Range{Key: "b"})
	again.Terms.RequestID = "r"
	mustApply(t, m, first)
	mustApply(t, m, again)
	mustApply(t, m, &Txn{Then: []Op{
		{Grant: held(3, "", keyrange.Range{Key: "c", End: "\x00"})}, {Touch: &Touch{ID: 3}},
	}})
	r := restored(t, m)
	if len(r.TakeHolds()) > 0 {
		t.Error("what a snapshot brings is no change")
	}
	for _, m := range []*Machine{m, r} {
		var got []string
		for id, ranges := range m.AllHolds().All() {
			got = append(got, fmt.Sprintf("%d %q", id, ranges))
		}
		want := []string{`1 [{"a" ""}]`, `3 [{"c" "\x00"}]`}
		if !slices.Equal(got, want) || m.HoldCount() != 2 {
			t.Errorf("%d: %v, want %v", m.HoldCount(), got, want)
		}
	}
	if other := mustRestoreBackup(t, m, Restoration{}); other.HoldCount() != 0 {
		t.Error("caches of a generation that was restored away go on")
	}
}

// TestCacheTTL checks that neither a command nor a snapshot gives a lease with holds a TTL above
// the limit. A rejected command changes nothing.
func TestCacheTTL(t *testing.T) {
	m := New(Config{})
	a := keyrange.Range{Key: "a"}
	long := func(id lease.ID, holds ...keyrange.Range) *Grant {
		g := held(id, "", holds...)
		g.Terms.TTL = MaxCacheTTL + 1
		return g
	}
	token := mustApply(t, m, held(1, "", a)).(*lease.Info).Token
	mustApply(t, m, long(2))
	before := hash(t, m)
	for _, c := range []Command{
		long(3, a),
		&Txn{Then: []Op{{Put: &Put{Key: "k"}}, {Grant: long(3, a)}}},
		&ChangeTTL{ID: 1, Token: token, TTL: MaxCacheTTL + 1},
		&ChangeTTL{ID: 1, Token: token, TTL: 4001, MaxCacheTTL: 4000},
	} {
		r := m.Apply(c)
		if e := new(CacheTTLError); !errors.As(r.Err, &e) || e.Got <= e.Max || hash(t, m) != before {
			t.Errorf("%T: %v", c, r.Err)
		}
	}
	if r := m.Apply(&ChangeTTL{ID: 1, TTL: math.MaxInt64}); !errors.Is(r.Err, lease.ErrNotFound) {
		t.Errorf("of another token: %v", r.Err)
	}
	mustApply(t, m, &ChangeTTL{ID: 1, Token: token, TTL: 4000, MaxCacheTTL: 4000})

	info, _ := m.lessor.Lookup(2)
	m.holds.set(&info, []keyrange.Range{a}) // no command can do this
	info, _ = restored(t, m).lessor.Lookup(2)
	if info.TTL != MaxCacheTTL {
		t.Errorf("restored with a TTL of %d ms", info.TTL)
	}
	if info, _ = mustRestoreBackup(t, m, Restoration{}).lessor.Lookup(2); info.TTL != MaxCacheTTL+1 {
		t.Errorf("restored without holds, with a TTL of %d ms", info.TTL)
	}
	mustApply(t, m, &Revoke{ID: 2})
	r := restored(t, m)
	if o, _ := r.Orphan(info.Token); o.Lease.TTL != MaxCacheTTL || r.CacheTTL() != MaxCacheTTL {
		t.Errorf("an orphan is restored with a TTL of %d ms, writes wait for %d ms",
			o.Lease.TTL, r.CacheTTL())
	}
}

// many returns n ranges.
func many(n int) (out []keyrange.Range) {
	for i := range n {
		out = append(out, keyrange.Range{Key: fmt.Sprint(i)})
	}
	return out
}

// owned is like held, for a lease with an owner.
func owned(id lease.ID, owner string, holds ...keyrange.Range) *Grant {
	g := held(id, "", holds...)
	g.Terms.Owner = owner
	return g
}

// TestHoldsAreBounded checks that holds are limited for each lease and in total, even within
// transactions. A rejected command changes nothing.
func TestHoldsAreBounded(t *testing.T) {
	m := New(Config{})
	for name, holds := range map[string][]keyrange.Range{
		"many":  many(maxHolds + 1),
		"long":  {{Key: strings.Repeat("k", maxHoldBytes+1)}},
		"empty": {{Key: "b", End: "a"}},
	} {
		c := held(1, "", holds...)
		if r := apply(t, m, c); !errors.Is(r.Err, ErrBadHolds) {
			t.Errorf("%s: %v", name, r.Err)
		}
		if r := apply(t, m, &Txn{Then: []Op{{Grant: c}}}); !errors.Is(r.Err, ErrBadHolds) {
			t.Errorf("%s, in a transaction: %v", name, r.Err)
		}
	}
	m.Begin(m.Index()+1, 1)
	id := lease.ID(1)
	for ; m.holds.ranges+maxHolds <= maxHeld; id++ {
		g := owned(id, fmt.Sprint(id), many(maxHolds)...)
		if id == 1 {
			g.Terms.Name, g.Terms.RequestID = "first", "r"
		}
		m.Apply(g)
	}
	left := maxHeld - m.holds.ranges
	over := held(id, "", many(left+1)...)
	twice := &Txn{Then: []Op{
		{Grant: held(id, "", many(left)...)}, {Grant: held(id+1, "", many(1)...)},
	}}
	for _, c := range []Command{over, &Txn{Then: []Op{{Grant: over}}}, twice} {
		if r := apply(t, m, c); !errors.Is(r.Err, ErrTooManyHolds) {
			t.Errorf("%T: %v", c, r.Err)
		}
	}
	if r := apply(t, m, owned(1, "", many(maxHolds)...)); !errors.Is(r.Err, lease.ErrExists) {
		t.Errorf("a lease that is there: %v", r.Err)
	}
	again := owned(id, "1", many(maxHolds)...)
	again.Terms.Name, again.Terms.RequestID = "first", "r"
	for _, c := range []Command{again, &Txn{Then: []Op{{Grant: again}}}} {
		if r := apply(t, m, c); r.Err != nil {
			t.Errorf("%T, a repeated request: %v", c, r.Err)
		}
	}
	// Within a transaction, a grant can reuse the ID of a lease that it revokes. However, the
	// revoked holds become an orphan and still count.
	taken := &Txn{Then: []Op{{Revoke: &Revoke{ID: 1}}, {Grant: held(1, "", many(maxHolds)...)}}}
	if r := apply(t, m, taken); !errors.Is(r.Err, ErrTooManyHolds) {
		t.Errorf("in the place of another: %v", r.Err)
	}
	mustApply(t, m, held(id, "", many(left)...))
	first, _ := m.lessor.Lookup(1)
	mustApply(t, m, &Revoke{ID: 1})
	if r := apply(t, m, held(1, "", many(maxHolds)...)); !errors.Is(r.Err, ErrTooManyHolds) {
		t.Errorf("in the place of an orphan: %v", r.Err)
	}
	mustApply(t, m, &DropOrphans{Tokens: []lease.Token{first.Token}})
	mustApply(t, m, held(1, "", many(maxHolds)...))
}

// TestHoldsOfAnOwnerAreBounded checks that the leases of one owner can hold only part of the total,
// as can all leases without an owner. When a lease gives up its holds, its owner can hold that much
// again, even after a restart.
func TestHoldsOfAnOwnerAreBounded(t *testing.T) {
	for _, owner := range []string{"ann", ""} {
		m := New(Config{})
		m.Begin(m.Index()+1, 1)
		id := lease.ID(1)
		for ; m.holds.ranges+maxHolds <= maxOwnerHeld; id++ {
			g := owned(id, owner, many(maxHolds)...)
			g.Terms.Secret, g.Terms.Bound = lease.Secret{byte(id)}, id == 5
			put := Op{Put: &Put{Key: "bound", Lease: 5}}
			if id != 5 {
				put.Put = &Put{Key: "other"}
			}
			mustApply(t, m, &Txn{Then: []Op{{Grant: g}, put}})
		}
		left := maxOwnerHeld - m.holds.ranges
		refused := func(what string, c Command) {
			t.Helper()
			if r := apply(t, m, c); !errors.Is(r.Err, ErrOwnerHolds) {
				t.Errorf("%q, %s: %v", owner, what, r.Err)
			}
		}
		over := owned(id, owner, many(left+1)...)
		refused("a lease", over)
		refused("in a transaction", &Txn{Then: []Op{{Grant: over}}})
		refused("two in a transaction", &Txn{Then: []Op{
			{Grant: owned(id, owner, many(left)...)}, {Grant: owned(id+1, owner, many(1)...)},
		}})
		mustApply(t, m, owned(id, owner))
		mustApply(t, m, &Txn{Then: []Op{
			{Grant: owned(id+1, "another", many(maxHolds)...)},
			{Grant: owned(id+2, owner, many(left)...)},
		}})
		m = restored(t, m)
		refused("after a restart", owned(id+3, owner, many(1)...))
		other, _ := m.Lessor().Lookup(2)
		for i, end := range []func(){
			func() { mustApply(t, m, &Revoke{ID: 1}) },
			func() { mustApply(t, m, &HandOver{ID: 2, Token: other.Token, Owner: "bob"}) },
			func() { expire(t, m, 3) },
			func() { mustApply(t, m, &Resume{ID: 4, Secret: lease.Secret{4}}) },
			func() { mustApply(t, m, &DeleteRange{Key: "bound"}) },
		} {
			end()
			for o := range m.AllHolds().Orphans() {
				mustApply(t, m, &DropOrphans{Tokens: []lease.Token{o.Lease.Token}})
			}
			mustApply(t, m, owned(id+4+lease.ID(i), owner, many(maxHolds)...))
			refused("what was given up is taken", owned(id+99, owner, many(1)...))
		}
	}
}

// TestSnapshotWithoutHolds checks that an image taken while there are no holds stays empty.
// Otherwise, a snapshot could name leases that it does not contain.
func TestSnapshotWithoutHolds(t *testing.T) {
	m := New(Config{})
	mustApply(t, m, held(1, "", keyrange.Range{Key: "a"}))
	mustApply(t, m, &Revoke{ID: 1})
	im := m.Image()
	mustApply(t, m, held(2, "", keyrange.Range{Key: "a"}))
	if n := im.holds.len(); n != 0 {
		t.Errorf("the picture shows %d holds of later", n)
	}
}

// TestSnapshotKeepsRemaining checks that a snapshot preserves the remaining time of a lease with
// holds even if it exceeds the TTL or the maximum TTL. This can happen because a new leader
// staggers expiries.
func TestSnapshotKeepsRemaining(t *testing.T) {
	m := New(Config{})
	g := held(1, "", keyrange.Range{Key: "a"})
	g.Terms.TTL = MaxCacheTTL
	info := mustApply(t, m, g).(*lease.Info)
	mustApply(t, m, &Checkpoint{Term: m.Term(), Leases: []lease.Checkpoint{
		{ID: 1, Token: info.Token, Remaining: MaxCacheTTL + 1000},
	}})
	// a lease without holds
	mustApply(t, m, &Grant{Terms: lease.Terms{ID: 2, TTL: 2 * MaxCacheTTL}})
	if hash(t, m) != hash(t, restored(t, m)) {
		t.Error("the states differ")
	}
}

// TestCheckHolds checks that CheckHolds limits what a lease can hold, to the byte, and the TTL of
// leases with holds.
func TestCheckHolds(t *testing.T) {
	long := []keyrange.Range{{Key: strings.Repeat("k", maxHoldBytes-2), End: "l"}, {Key: "m"}}
	for _, c := range []struct {
		holds []keyrange.Range
		ttl   lease.TTL
		want  error
	}{
		{nil, 2 * MaxCacheTTL, nil},
		{many(maxHolds), MaxCacheTTL, nil},
		{long, 5000, nil},
		{many(maxHolds + 1), 5000, ErrBadHolds},
		{append(long, keyrange.Range{Key: "n"}), 5000, ErrBadHolds},
		{[]keyrange.Range{{Key: "b", End: "a"}}, 5000, ErrBadHolds},
	} {
		if err := CheckHolds(c.holds, c.ttl, MaxCacheTTL); !errors.Is(err, c.want) {
			t.Errorf("%d ranges for %d: %v, not %v", len(c.holds), c.ttl, err, c.want)
		}
	}
	err := CheckHolds(many(1), 5001, 5000)
	if got := new(CacheTTLError); !errors.As(err, &got) || *got != (CacheTTLError{5001, 5000}) {
		t.Errorf("longer than may be: %v", err)
	}
}

// TestHoldsStop checks that a caller can stop an iteration over holds and orphans early.
func TestHoldsStop(t *testing.T) {
	m := New(Config{})
	for id := range lease.ID(4) {
		mustApply(t, m, held(id+1, "", keyrange.Range{Key: "a"}))
	}
	mustApply(t, m, &Revoke{ID: 3})
	mustApply(t, m, &Revoke{ID: 4})
	for id := range m.AllHolds().All() {
		if id == 1 {
			break
		}
		t.Errorf("lease %d comes first", id)
	}
	for o := range m.AllHolds().Orphans() {
		if o.Lease.ID == 3 {
			break
		}
		t.Errorf("the orphan of lease %d comes first", o.Lease.ID)
	}
}

// TestNoHoldsNoNews checks that a lease without holds reports no changes to the cache directory.
func TestNoHoldsNoNews(t *testing.T) {
	m := New(Config{})
	mustApply(t, m, held(1, "", keyrange.Range{Key: "a"}))
	m.TakeHolds()
	grant(t, m, 2)
	mustApply(t, m, &Revoke{ID: 2})
	if got := m.TakeHolds(); len(got) != 0 {
		t.Errorf("news of %v", got)
	}
	if n := m.Stats(); n != (Stats{Granted: 2, Revoked: 1}) {
		t.Errorf("%+v", n)
	}
}
