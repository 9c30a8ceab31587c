package fsm

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
)

// mustBeSound panics if an invariant is violated.
func (m *Machine) mustBeSound() {
	if err := m.checkInvariants(); err != nil {
		panic(err)
	}
}

func apply(t testing.TB, m *Machine, c Command) Result {
	t.Helper()
	m.Begin(m.Index()+1, 1)
	r := m.Apply(c)
	m.mustBeSound()
	return r
}

func mustApply(t testing.TB, m *Machine, c Command) any {
	t.Helper()
	r := apply(t, m, c)
	if r.Err != nil {
		t.Fatalf("%#v: %v", c, r.Err)
	}
	return r.Value
}

func grant(t testing.TB, m *Machine, id lease.ID) lease.Token {
	t.Helper()
	return mustApply(t, m, &Grant{Terms: lease.Terms{ID: id, TTL: 5000}}).(*lease.Info).Token
}

func value(m *Machine, key string) string {
	if kv := m.View().KV.Get(key); kv != nil {
		return string(kv.Value)
	}
	return "none"
}

// TestExpireIsFenced checks that an expiry has no effect in an entry of another term (T1), or if
// the lease was granted again under the same ID (T28).
func TestExpireIsFenced(t *testing.T) {
	m := New(Config{})
	old := grant(t, m, 1)
	mustApply(t, m, &Put{Key: "k", Lease: 1})
	info, _ := m.lessor.Lookup(1)
	due := lease.Due{ID: 1, Token: old, Stamp: info.Stamp}

	m.Begin(m.Index()+1, 2)
	if r := m.Apply(&Expire{Term: 1, Leases: []lease.Due{due}}); !errors.Is(r.Err, ErrStale) {
		t.Errorf("expiry of term 1 in an entry of term 2: %v", r.Err)
	}
	if value(m, "k") == "none" {
		t.Fatal("a deposed leader's expiry took effect")
	}
	m.Apply(&Revoke{ID: 1})
	m.Apply(&Grant{Terms: lease.Terms{ID: 1, TTL: 5000}})
	m.Apply(&Put{Key: "k", Lease: 1})
	m.Apply(&Expire{Term: 2, Leases: []lease.Due{due}})
	if value(m, "k") == "none" {
		t.Fatal("the expiry of an earlier incarnation of the lease ended the new one")
	}
	info, _ = m.lessor.Lookup(1)
	m.Apply(&Expire{Term: 2, Leases: []lease.Due{{ID: 1, Token: info.Token, Stamp: info.Stamp}}})
	if value(m, "k") != "none" || m.lessor.Len() != 0 {
		t.Error("a valid expiry had no effect")
	}
	if s := m.Stats(); s.Granted != 2 || s.Expired != 1 || s.Revoked != 1 {
		t.Errorf("stats %+v", s)
	}
}

// TestBeginIsIdempotent (T11) checks that an entry is applied only once.
func TestBeginIsIdempotent(t *testing.T) {
	m := New(Config{})
	if !m.Begin(5, 1) || m.Begin(5, 1) || m.Begin(4, 2) || !m.Begin(6, 1) {
		t.Error("entries are applied once, in order")
	}
}

// TestMembershipRefusals checks which membership changes every member rejects when it applies them.
func TestMembershipRefusals(t *testing.T) {
	m := New(Config{})
	m.AddMember(Member{ID: 1, PeerURLs: []string{"a"}})
	mustApply(t, m, &SetMember{Member: Member{ID: 1, Incarnation: 5}})
	mustApply(t, m, &AddMember{Member: Member{ID: 2, PeerURLs: []string{"b"}, Learner: true}})
	mustApply(t, m, &AddMember{Member: Member{ID: 3, PeerURLs: []string{"c"}, Learner: true}})
	mustApply(t, m, &RemoveMember{ID: 3})
	for _, c := range []struct {
		command Command
		want    error
	}{
		{&AddMember{Member: Member{ID: 2}}, ErrMemberExists},
		{&AddMember{Member: Member{ID: 3}}, ErrMemberExists},
		{&AddMember{Member: Member{ID: 4, PeerURLs: []string{"x", "a"}}}, ErrPeerURLExists},
		{&SetMember{Member: Member{ID: 1, PeerURLs: []string{"b"}}}, ErrPeerURLExists},
		{&SetMember{Member: Member{ID: 1, Incarnation: 6}}, ErrIncarnation},
		{&RemoveMember{ID: 3}, ErrMemberNotFound},
		{&RemoveMember{ID: 1}, ErrLastVoter},
		{&PromoteMember{ID: 3}, ErrMemberNotFound},
		{&PromoteMember{ID: 1}, ErrNotLearner},
	} {
		if r := apply(t, m, c.command); !errors.Is(r.Err, c.want) {
			t.Errorf("%#v: %v, want %v", c.command, r.Err, c.want)
		}
	}
	mustApply(t, m, &PromoteMember{ID: 2})
	mustApply(t, m, &RemoveMember{ID: 1})
	if v := m.View(); len(v.Members) != 1 || v.Members[0].Learner {
		t.Errorf("view %+v", v)
	}
}

func hash(t testing.TB, m *Machine) uint32 {
	t.Helper()
	h, err := m.Image().Hash()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// chunks returns the chunks of a snapshot of m.
func chunks(t testing.TB, m *Machine) [][]byte {
	t.Helper()
	var all [][]byte
	err := m.Image().Encode(func(b []byte) error {
		all = append(all, slices.Clone(b))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// source returns a function that returns successive chunks.
func source(chunks ...[]byte) func() ([]byte, bool, error) {
	return func() ([]byte, bool, error) {
		if len(chunks) == 0 {
			return nil, false, nil
		}
		chunk := chunks[0]
		chunks = chunks[1:]
		return chunk, true, nil
	}
}

// restored returns a copy of m restored from a snapshot, as after a restart.
func restored(t testing.TB, m *Machine) *Machine {
	t.Helper()
	r, err := restoreChunks(m.cfg, chunks(t, m)...)
	if err != nil {
		t.Fatal(err)
	}
	r.mustBeSound()
	if r.Index() != m.Index() {
		t.Fatalf("restored index %d, want %d", r.Index(), m.Index())
	}
	return r
}

// TestRestoreRefusesPartOfASnapshot checks that Restore rejects a snapshot that is truncated, lacks
// a chunk, or cannot be read completely. Missing records are detected because the trailer counts
// them.
func TestRestoreRefusesPartOfASnapshot(t *testing.T) {
	m := New(Config{})
	grant(t, m, 1)
	for i := range 5000 {
		mustPut := &Put{Key: fmt.Sprintf("key-%05d", i), Value: make([]byte, 1000)}
		m.Begin(m.Index()+1, 1)
		m.Apply(mustPut)
	}
	chunks := chunks(t, m)
	if len(chunks) < 4 {
		t.Fatalf("%d chunks; the test needs some", len(chunks))
	}
	failing := errors.New("disk")
	for name, give := range map[string]func(i int) ([]byte, bool, error){
		"cut": func(i int) ([]byte, bool, error) { return chunks[i], i < len(chunks)-1, nil },
		"skipped": func(i int) ([]byte, bool, error) {
			i += min(i, 1)
			return chunks[min(i, len(chunks)-1)], i < len(chunks), nil
		},
		"failing": func(i int) ([]byte, bool, error) {
			if i == 2 {
				return nil, false, failing
			}
			return chunks[i], true, nil
		},
	} {
		i := -1
		_, err := Restore(Config{}, func() ([]byte, bool, error) { i++; return give(i) })
		if err == nil || name == "failing" && !errors.Is(err, failing) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// TestChangesOfManyEvents checks that watchers receive all events, even if a transaction has too
// many for the reused memory.
func TestChangesOfManyEvents(t *testing.T) {
	m := New(Config{})
	for _, n := range []int{1, mvcc.KeptEvents + 1, 2, 3 * mvcc.KeptEvents, mvcc.KeptEvents + 1} {
		var c Txn
		for i := range n {
			c.Then = append(c.Then, Op{Put: &Put{Key: fmt.Sprint(i)}})
		}
		mustApply(t, m, &c)
		mustApply(t, m, &Put{Key: "one more"})
		changes := m.TakeChanges()
		if len(changes) != 2 || len(changes[0].Events) != n || len(changes[1].Events) != 1 {
			t.Fatalf("changes %+v, want %d and 1", changes, n)
		}
		for i, e := range changes[0].Events {
			if e.KV.Key != fmt.Sprint(i) {
				t.Errorf("event %d of %d is of %q", i, n, e.KV.Key)
			}
		}
		m.ReuseChanges()
	}
}
