package fsm

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"leasehold.dev/internal/keyrange"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
)

// recount computes the size of a state from all its parts.
func recount(m *Machine) (b Bytes) {
	v := m.View()
	alive := make(map[string]*mvcc.Record)
	for r := range v.KV.Records() {
		one, key := mvcc.PutSize("", nil), mvcc.PutSize(r.Key, r.Value)
		last := alive[r.Key]
		if last != nil && !last.Tombstone {
			key -= one - recordAlone + int64(len(r.Key))
			if len(r.Value) > mvcc.ShortValue && last.Lease != r.Lease &&
				bytes.Equal(last.Value, r.Value) {
				key -= int64(len(r.Value))
			}
		}
		b.Keys += key
		alive[r.Key] = &r
		if r.ModRevision < v.KV.Revision() || v.KV.Compacted() < v.KV.Revision() {
			continue
		}
		switch kv := v.KV.Get(r.Key); { // the record is kept only for watches that start here
		case r.Tombstone:
			b.Keys -= mvcc.PutSize(r.Key, nil)
		case kv == nil || kv.Version != r.Version || kv.CreateRevision != r.CreateRevision:
			b.Keys -= recordAlone + int64(len(r.Value))
		}
	}
	for info := range m.lessor.Leases() {
		keys := int64(m.lessor.KeyCount(info.ID))
		b.Leases += info.Bytes() + keys*lease.AttachBytes
		if info.KeepKeys {
			b.Leases += keys * lease.KeepBytes
		}
		if ranges := m.holds.held(info.ID); len(ranges) > 0 {
			b.Leases += info.Bytes() + holdBytes + int64(len(ranges))*rangeBytes + textBytes(ranges)
		}
	}
	for o := range m.holds.Orphans() {
		b.Leases += o.Lease.Bytes() + holdBytes + int64(len(o.Ranges))*rangeBytes + textBytes(o.Ranges)
	}
	for _, s := range m.sessions.byID {
		b.Sessions += sessionBytes + int64(len(s.user))
		for i := range s.answers {
			b.Sessions += resultSize(&s.answers[i].result)
		}
	}
	for _, n := range v.Members {
		b.Members += memberBytes + int64(len(n.Name)+len(n.TokenKey))
		for _, u := range append(append([]string(nil), n.PeerURLs...), n.ClientURLs...) {
			b.Members += urlBytes + int64(len(u))
		}
	}
	b.Members += int64(len(v.Removed)+len(v.Alarms)) * removedBytes
	for _, name := range v.Access.Users() {
		u, _ := v.Access.User(name)
		b.Access += u.Bytes()
	}
	for _, name := range v.Access.Roles() {
		r, _ := v.Access.Role(name)
		b.Access += r.Bytes()
	}
	return b
}

// TestSum checks that each part counts against the quota exactly once.
func TestSum(t *testing.T) {
	b := Bytes{Keys: 1, Leases: 10, Sessions: 100, Members: 1000, Access: 10_000}
	if got := b.Sum(); got != 11_111 {
		t.Errorf("sum %d", got)
	}
	g := &Grant{Terms: lease.Terms{ID: 5, TTL: 5000}}
	if got := Growth(&Txn{Then: []Op{{Grant: g}}}); got != Growth(g) || got == 0 {
		t.Errorf("a grant grows by %d, and by %d in a transaction", Growth(g), got)
	}
}

// TestSizesStay checks that the sizes counted for recorded responses and holds never change between
// releases, because eviction and quota depend on them.
func TestSizesStay(t *testing.T) {
	var got []int64
	for _, x := range resultThings()[:19] {
		r := x.value.(Result)
		got = append(got, resultSize(&r))
	}
	want := []int64{
		256, 389, 256, 517, 352, 613, 456, 834, 834, 256, 256, 256, 256, 3707, // values
		835, 256, 256, 256, 257, // errors with data
	}
	if !slices.Equal(got, want) {
		t.Errorf("answers take\n%v, want\n%v", got, want)
	}
	holds := []keyrange.Range{{Key: "a", End: "bc"}, {Key: "d"}}
	if n := holdSize(&lease.Terms{ID: 1, Name: "n"}, holds); n != 1005 {
		t.Errorf("a hold takes %d bytes", n)
	}
}

// recordAlone is the size that another version of a key adds, excluding its value.
var recordAlone = func() int64 {
	s := mvcc.New()
	for range 2 {
		t := s.Begin()
		t.Put("", nil, 0)
		t.End()
	}
	return s.Size() - mvcc.PutSize("", nil)
}()

// randomChange returns a random command of a client or member, with or without a number.
func randomChange(rng *rand.Rand, n uint64) Command {
	member := Member{
		ID: uint64(rng.IntN(4)), Name: strings.Repeat("m", rng.IntN(3)), Learner: true,
		PeerURLs: []string{fmt.Sprint("peer", rng.IntN(5))}, ClientURLs: []string{"client"},
	}
	switch rng.IntN(12) {
	case 0:
		return &OpenSession{Nonce: 1}
	case 1:
		return &AddMember{member}
	case 2:
		return &SetMember{member}
	case 3:
		return &RemoveMember{member.ID}
	case 4:
		return &SetAlarm{Off: rng.IntN(3) > 0, Alarm: Alarm{Member: 1, Kind: NoSpace}}
	}
	c := randomCommand(rng)
	if !c.kind().repeatable() || rng.IntN(2) == 0 {
		return c
	}
	return &Once{Session{uint64(1 + rng.IntN(3)), 1}, n, n - min(n, uint64(rng.IntN(20))), c}
}

// TestBytes checks that the size of the state is the sum of its parts, regardless of scrubbing and
// restores. A put or grant adds no more to it than Growth predicts.
func TestBytes(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 3))
		a, b := small(New(Config{})), New(Config{})
		b.sessions.limits = a.sessions.limits
		for i := range uint64(400) {
			c, before := randomChange(rng, i+1), a.View().Bytes.Sum()
			head := a.store.Compacted() == a.store.Revision()
			now(rng, a, c)
			if rng.IntN(20) == 0 && a.store.Revision() > a.store.Compacted() {
				c = &Compact{Revision: a.store.Revision() - int64(rng.IntN(3))}
			}
			most := Growth(c)
			apply(t, a, c)
			apply(t, b, c)
			got := a.View().Bytes
			if want := recount(a); got != want {
				t.Fatalf("seed %d, step %d: %#v: counted %+v, want %+v", seed, i, c, got, want)
			}
			if got != b.View().Bytes {
				t.Fatalf("seed %d, step %d: %#v: %+v and %+v", seed, i, c, got, b.View().Bytes)
			}
			if _, put := c.(*Put); put && head {
				continue // versions kept only for watches count again
			}
			switch c.(type) {
			case *Put, *Grant:
				if more := got.Sum() - before; more > most {
					t.Fatalf("seed %d: %#v: %d bytes more, Growth says %d", seed, c, more, most)
				}
			}
			switch rng.IntN(40) {
			case 0:
				b = restored(t, b)
				b.sessions.limits = a.sessions.limits
			case 1:
				b.Scrub(1 + rng.IntN(5))
			}
		}
	}
}

// TestGrowthOfKeptValues checks that a put that keeps the existing value costs as much as a put
// with a value. Otherwise, short requests could grow the state without bound.
func TestGrowthOfKeptValues(t *testing.T) {
	m := New(Config{})
	apply(t, m, &Put{Key: "k", Value: make([]byte, 100_000)})
	apply(t, m, &Put{Key: "gone"})
	apply(t, m, &DeleteRange{Key: "gone"})
	put := &Put{Key: "k", IgnoreValue: true}
	inTxn := &Txn{Then: []Op{{Txn: &Txn{Then: []Op{{Put: put}}}}}}
	gone := &Put{Key: "gone", IgnoreValue: true}
	for c, p := range map[Command]*Put{put: put, inTxn: put, gone: gone} {
		v := m.View()
		most := m.putCost(p, 0, true).Bytes
		apply(t, m, c)
		if more := m.View().Bytes.Sum() - v.Bytes.Sum(); more > most || most > more+1000 {
			t.Errorf("%#v: %d bytes more, growth says %d", c, more, most)
		}
	}
}
