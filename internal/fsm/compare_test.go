package fsm

import (
	"errors"
	"slices"
	"testing"
)

// reported applies a HashState, followed by the hash that each member reports. 0 means no report.
func reported(t *testing.T, m *Machine, hashes ...uint64) {
	t.Helper()
	mustApply(t, m, &HashState{})
	at := m.Index()
	for i, h := range hashes {
		if h != 0 {
			mustApply(t, m, &StateHash{Member: uint64(i) + 1, Index: at, Hash: h})
		}
	}
}

func withMembers(voters, learners uint64) *Machine {
	m := New(Config{})
	for id := range voters + learners {
		m.AddMember(Member{ID: id + 1, PeerURLs: []string{string(rune('a' + id))}, Learner: id >= voters})
	}
	return m
}

// TestComparison checks that a member is marked as damaged if its hash differs from the hash of a
// majority of voters. The cluster is marked as split only if no majority is possible. Each round is
// independent of earlier ones.
func TestComparison(t *testing.T) {
	split := Alarm{Kind: Split}
	damaged := func(id uint64) Alarm { return Alarm{id, Damaged} }
	for _, c := range []struct {
		name             string
		voters, learners uint64
		rounds           [][]uint64
		want             []Alarm
	}{
		{"all agree", 3, 0, [][]uint64{{7, 7, 7}, {8, 8, 8}}, nil},
		{"one of three differs", 3, 0, [][]uint64{{7, 9, 7}}, []Alarm{damaged(2)}},
		{"the last to tell makes the majority", 3, 0, [][]uint64{{9, 7, 7}}, []Alarm{damaged(1)}},
		{"two voters differ", 2, 0, [][]uint64{{7, 9}}, []Alarm{split}},
		{"a single voter", 1, 0, [][]uint64{{7}}, nil},
		{"two of three differ, the third has not told", 3, 0, [][]uint64{{7, 9, 0}}, nil},
		{"nor has it in the end", 3, 0, [][]uint64{{7, 9, 0}, {}}, []Alarm{split}},
		{"and then it has", 3, 0, [][]uint64{{7, 9, 0}, {7, 9, 7}}, []Alarm{damaged(2)}},
		{"three of three differ", 3, 0, [][]uint64{{7, 8, 9}}, []Alarm{split}},
		{"two of four are no majority", 4, 0, [][]uint64{{7, 7, 9, 9}}, []Alarm{split}},
		{"two of five differ alike", 5, 0, [][]uint64{{7, 7, 9, 7, 9}}, []Alarm{damaged(3), damaged(5)}},
		{"learners do not vote", 1, 2, [][]uint64{{7, 9, 9}}, []Alarm{damaged(2), damaged(3)}},
		{"split no more", 2, 0, [][]uint64{{7, 9}, {7, 7}}, nil},
		{"nobody else has told", 3, 0, [][]uint64{{9, 0, 0}, {9, 0, 0}}, nil},
	} {
		m := withMembers(c.voters, c.learners)
		for _, round := range c.rounds {
			reported(t, m, round...)
			m.View()
		}
		if got := m.View().Alarms; !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, and not %v", c.name, got, c.want)
		}
		if got, want := m.View().Bytes, recount(m); got != want {
			t.Errorf("%s: %+v bytes, and not %+v", c.name, got, want)
		}
	}
}

// TestWritesAndDamage checks that a damaged member does not block writes. A split blocks all writes
// until there is a majority or a client clears the alarm. Clients cannot raise these alarms.
func TestWritesAndDamage(t *testing.T) {
	m := withMembers(3, 0)
	reported(t, m, 9, 7, 7)
	if mustApply(t, m, &Put{Key: "k"}); !m.IsDamaged(1) || m.IsDamaged(2) {
		t.Errorf("alarms %v", m.View().Alarms)
	}
	mustApply(t, m, &SetAlarm{Alarm: Alarm{1, Corrupt}, Off: true})
	if m.IsDamaged(1) {
		t.Error("still damaged")
	}
	reported(t, m, 7, 8, 9)
	if r := apply(t, m, &Put{Key: "k"}); !errors.Is(r.Err, ErrDiverged) {
		t.Errorf("put of a split cluster: %v", r.Err)
	}
	mustApply(t, m, &RemoveMember{ID: 3})
	reported(t, m, 7, 7)
	mustApply(t, m, &Put{Key: "k"})
	reported(t, m, 7, 9)
	mustApply(t, m, &SetAlarm{Alarm: Alarm{Kind: Corrupt}, Off: true})
	mustApply(t, m, &Put{Key: "k"})
	for _, k := range []AlarmKind{Damaged, Split} {
		c := &SetAlarm{Alarm: Alarm{1, k}}
		if _, err := DecodeEntry(encode(c)); !errors.Is(err, ErrCorrupt) || Readable(c) {
			t.Errorf("%v can be set: %v", k, err)
		}
	}
}

// TestRemovedAndDamaged checks that removing a member also removes its alarms.
func TestRemovedAndDamaged(t *testing.T) {
	m := withMembers(3, 0)
	reported(t, m, 9, 7, 7)
	mustApply(t, m, &RemoveMember{ID: 1})
	mustApply(t, m, &StateHash{Member: 1, Index: m.HashedAt(), Hash: 9})
	if got := m.View().Alarms; len(got) != 0 {
		t.Errorf("alarms %v", got)
	}
	m = withMembers(3, 0)
	reported(t, m, 9, 7)
	mustApply(t, m, &RemoveMember{ID: 1})
	mustApply(t, m, &StateHash{Member: 3, Index: m.HashedAt(), Hash: 7})
	if got := m.View().Alarms; len(got) != 0 {
		t.Errorf("alarms of a member that was removed before it was known to differ: %v", got)
	}
}

// TestComparisonInSnapshot checks that a comparison in progress is part of the state. A member that
// receives a snapshot in the middle of the comparison reaches the same result.
func TestComparisonInSnapshot(t *testing.T) {
	m := withMembers(3, 0)
	reported(t, m, 9, 7)
	other := restored(t, m)
	if other.HashedAt() != m.HashedAt() {
		t.Errorf("hashed at %d and %d", m.HashedAt(), other.HashedAt())
	}
	for _, m := range []*Machine{m, other} {
		mustApply(t, m, &StateHash{Member: 3, Index: m.HashedAt(), Hash: 7})
		if !m.IsDamaged(1) {
			t.Error("not found")
		}
	}
	if hash(t, m) != hash(t, other) {
		t.Error("the states differ")
	}
}

// TestHashDoesNotChange checks that the hash does not change within a cluster version, because
// members with different releases compare their hashes.
func TestHashDoesNotChange(t *testing.T) {
	if h, err := everything(t).Image().Hash(); err != nil || h != 0xecdfce65 {
		t.Errorf("the hash is %#08x, %v", h, err)
	}
}
