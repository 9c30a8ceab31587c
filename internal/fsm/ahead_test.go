package fsm

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
	"leasehold.dev/test/tier"
)

// TestAhead checks that a member that applies a deletion ahead, one key at a time, reaches the same
// state as a member that applies it in one step. The parts done ahead stay invisible until the
// entry is applied.
func TestAhead(t *testing.T) {
	parts := 0
	for seed := range uint64(tier.Budget(8, 20)) {
		rng := rand.New(rand.NewPCG(seed, 1))
		at, in := New(Config{}), New(Config{AheadKeys: 1})
		session := open(t, at, 5)
		open(t, in, 5)
		for number := uint64(1); number < 400; number++ {
			c := randomCommand(rng)
			if rng.IntN(8) == 0 {
				c = &DeleteRange{Key: string(rune('a' + rng.IntN(2))), End: "i", PrevKV: rng.IntN(2) == 0}
				if rng.IntN(2) == 0 {
					c = &Once{session, 1 + rng.Uint64N(number), number / 2, c}
				}
			}
			before, leases := hash(t, in), in.Leases().Len()
			view := in.View()
			for in.Ahead(c) {
				if parts++; !in.Midway() {
					t.Fatalf("seed %d: not midway", seed)
				}
				checkSee := in.View().KV.Revision() != view.KV.Revision() ||
					in.Leases().Len() != leases || in.View().LeaseEvents.last != view.LeaseEvents.last
				if checkSee || hash(t, in) != before || in.Index() != view.Index {
					t.Fatalf("seed %d: a part of %#v is seen", seed, c)
				}
				if !in.Scrub(10) {
					t.Fatalf("seed %d: all is clean, says Scrub", seed)
				}
			}
			if got, want := apply(t, in, c), apply(t, at, c); !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d: %#v: %+v, at once %+v", seed, c, got, want)
			}
			if in.Midway() {
				t.Fatalf("seed %d: midway after %#v", seed, c)
			}
			if got, want := in.TakeChanges(), at.TakeChanges(); !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d: %#v: changes %+v, at once %+v", seed, c, got, want)
			}
			if got, want := in.View().LeaseEvents, at.View().LeaseEvents; !reflect.DeepEqual(
				events(t, got), events(t, want),
			) {
				t.Fatalf("seed %d: %#v: %+v, at once %+v", seed, c, got, want)
			}
			if got, want := hash(t, in), hash(t, at); got != want {
				t.Fatalf("seed %d: %#v: hash %x, at once %x", seed, c, got, want)
			}
		}
	}
	if parts < 50 {
		t.Errorf("only %d parts were done ahead", parts)
	}
}

// events returns all lease events.
func events(t *testing.T, l LeaseEvents) (all []LeaseEvent) {
	for seq := uint64(0); ; seq = all[len(all)-1].Seq {
		next, err := l.After(seq)
		if err != nil {
			t.Fatal(err)
		}
		if len(next) == 0 {
			return all
		}
		all = append(all, next...)
	}
}

// TestBoundLeasesEndAhead checks that when a large deletion is done in parts, leases bound to its
// keys end in the same parts as their keys. Otherwise, the last part would end all of them.
func TestBoundLeasesEndAhead(t *testing.T) {
	const keys = 100
	m := New(Config{AheadKeys: 10})
	for i := range keys {
		mustApply(t, m, putBound(fmt.Sprintf("k/%03d", i), lease.ID(i+1), 60_000))
	}
	remove := &DeleteRange{Key: "k/", End: "k0"}
	for left := keys - 10; m.Ahead(remove); left -= 10 {
		if n := m.lessor.Len(); n != left {
			t.Fatalf("%d leases have not ended, want %d", n, left)
		}
	}
	mustApply(t, m, remove)
	list := events(t, m.View().LeaseEvents)
	for i, e := range list[keys:] {
		if e.Revision != m.View().KV.Revision() || e.Info.ID != lease.ID(i+1) || e.By != ByKey {
			t.Errorf("event %+v", e)
		}
	}
	if m.lessor.Len() != 0 || len(list) != 2*keys {
		t.Errorf("%d leases are left, %d events", m.lessor.Len(), len(list))
	}
}

// TestNotAhead checks that nothing is deleted ahead for a command that will be rejected or has been
// done before.
func TestNotAhead(t *testing.T) {
	m := New(Config{AheadKeys: 2})
	session := open(t, m, 5)
	for _, key := range []string{"a", "b", "c", "d"} {
		mustApply(t, m, &Put{Key: key})
	}
	all := &DeleteRange{Key: "\x00", End: "\x00"}
	mustApply(t, m, &Once{session, 7, 5, &DeleteRange{Key: "x", End: "y"}})
	for name, c := range map[string]Command{
		"one key":       &DeleteRange{Key: "a"},
		"few":           &DeleteRange{Key: "a", End: "c"},
		"transaction":   &Txn{Then: []Op{{Delete: all}}},
		"done":          &Once{session, 7, 5, all},
		"settled":       &Once{session, 4, 0, all},
		"settles it":    &Once{session, 8, 9, all},
		"other session": &Once{Session{9, 5}, 8, 5, all},
		"other nonce":   &Once{Session{1, 6}, 8, 5, all},
	} {
		if m.Ahead(c) {
			t.Errorf("%s: done ahead", name)
		}
	}
	mustApply(t, m, &SetAlarm{Alarm: Alarm{Member: 1, Kind: Corrupt}})
	if m.Ahead(all) {
		t.Error("done ahead, and refused because members differ")
	}
	mustApply(t, m, &SetAlarm{Alarm: Alarm{Member: 1, Kind: Corrupt}, Off: true})
	if !m.Ahead(&Once{session, 8, 5, all}) || m.Ahead(&Once{session, 8, 5, all}) {
		t.Error("four keys are not done in two parts")
	}
}

// pastRange returns a transaction that reads all keys as of a revision.
func pastRange(revision int64) *Txn {
	all := Op{Range: &Range{
		Key: "\x00", End: "\x00", Options: mvcc.RangeOptions{Revision: revision},
	}}
	put := Op{Put: &Put{Key: "read"}}
	return &Txn{Then: []Op{put, {Txn: &Txn{Else: []Op{all}}}}}
}

// TestPrepare checks that a member that clears deleted keys in parts before an entry that reads an
// old revision gets the same result as a member that clears them in one step.
func TestPrepare(t *testing.T) {
	const keys = 2*preparedKeys + 1
	at, in := New(Config{}), New(Config{})
	var made Txn
	for i := range keys {
		made.Then = append(made.Then, Op{Put: &Put{Key: fmt.Sprint("k", i)}})
	}
	for _, m := range []*Machine{at, in} {
		mustApply(t, m, &made)
		mustApply(t, m, &DeleteRange{Key: "k", End: "l"})
		mustApply(t, m, &Put{Key: "last"})
	}
	past := pastRange(4)
	if in.Prepare(past) {
		t.Error("something is prepared without a compaction")
	}
	for _, m := range []*Machine{at, in} {
		mustApply(t, m, &Compact{Revision: 4})
	}
	for name, c := range map[string]Command{
		"put": &Put{Key: "x"}, "of the present": pastRange(0),
		"one key": &Txn{Then: []Op{{Range: &Range{
			Key: "a", Options: mvcc.RangeOptions{Revision: 4},
		}}}},
	} {
		if in.Prepare(c) || in.store.Deleted() != keys {
			t.Errorf("%s: keys are cleared", name)
		}
	}
	before, parts := hash(t, in), 0
	for in.Prepare(past) {
		if parts++; hash(t, in) != before {
			t.Fatal("a part is seen")
		}
	}
	if parts != 2 || in.store.Deleted() != 0 {
		t.Errorf("%d parts, %d keys are left", parts, in.store.Deleted())
	}
	if got, want := apply(t, in, past), apply(t, at, past); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, and without being prepared %+v", got, want)
	}
}

// TestAheadCopiesNothing checks that no part copies the pairs deleted by earlier parts, because
// there can be many of them.
func TestAheadCopiesNothing(t *testing.T) {
	const keys = 1000
	m := New(Config{AheadKeys: 10})
	for i := range keys {
		mustApply(t, m, &Put{Key: fmt.Sprintf("k/%06d", i)})
	}
	remove := &DeleteRange{Key: "k/", End: "k0", PrevKV: true}
	m.Ahead(remove)
	first := &m.ahead.result.Prev[0]
	for m.Ahead(remove) {
		if prev := m.ahead.result.Prev; &prev[0] != first {
			t.Fatalf("%d pairs are copied", len(prev))
		}
	}
	if r := mustApply(t, m, remove).(*DeleteResult); len(r.Prev) != keys {
		t.Errorf("%d pairs are returned", len(r.Prev))
	}
}

// TestTxnDeletesTooMuch checks that the number of deletions in a transaction is bounded, including
// keys of leases that it revokes. A single deletion is not bounded, because it is done in parts.
func TestTxnDeletesTooMuch(t *testing.T) {
	const keys, leases = 10_000, 3
	txn := func(ops ...Op) *Txn { return &Txn{Then: ops} }
	remove := func(end int) Op {
		return Op{Delete: &DeleteRange{Key: "key/", End: fmt.Sprintf("key/%06d", end)}}
	}
	revoke := func(id lease.ID) Op { return Op{Revoke: &Revoke{ID: id}} }
	m := New(Config{})
	for id := range lease.ID(leases) {
		name := fmt.Sprint("l", id)
		mustApply(t, m, &Grant{Terms: lease.Terms{ID: id + 1, TTL: 1000, Name: name}})
	}
	m.Begin(m.Index()+1, 1)
	for i := range leases * keys {
		m.Apply(&Put{Key: fmt.Sprintf("key/%06d", i), Lease: lease.ID(i/keys + 1)})
	}
	byName := Op{Revoke: &Revoke{Name: "l0"}}
	for name, c := range map[string]*Txn{
		"a range": txn(remove(25_000)), "leases": txn(byName, revoke(2), revoke(3)),
		"nested": txn(remove(10_000), Op{Txn: txn(byName, revoke(2))}),
	} {
		if r := apply(t, m, c); r.Err != ErrTxnTooLarge { //nolint:errorlint
			t.Errorf("%s: %v", name, r.Err)
		}
		if d := m.Time(c, 0); d <= applyTime {
			t.Errorf("%s: estimated at %d", name, d)
		}
	}
	mustApply(t, m, txn(byName, remove(14_000)))
	if n := m.View().KV.Len(); n != leases*keys-14_000 {
		t.Errorf("%d keys are left", n)
	}
	mustApply(t, m, &DeleteRange{Key: "\x00", End: "\x00"})
}
