package confirm

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// promises is a batch of numbered promises.
type promises []int

func (p promises) Empty() bool       { return len(p) == 0 }
func (p promises) Emptied() promises { return p[:0] }

// model knows each promise by itself.
type model struct {
	t     *testing.T
	q     Queue[promises]
	round uint64            // under way; 0 if none is
	began map[int]uint64    // promises that a round serves: the first that began after them
	index map[uint64]uint64 // of rounds that are confirmed
	made  int               // promises
	told  int               // promises that were told
}

// step does something at random: a promise is made, a round begins, the quorum says something of
// this round or another one, or the member applies.
func (m *model) step(r *rand.Rand) {
	switch r.IntN(4) {
	case 0:
		m.q.Next = append(m.q.Next, m.made)
		m.made++
	case 1:
		id, ok := m.q.Begin()
		if want := m.round == 0 && m.made > len(m.began)+m.told; ok != want {
			m.t.Fatalf("a round begins: %v, want %v", ok, want)
		}
		if !ok {
			return
		}
		for p := m.told; p < m.made; p++ {
			if _, ok := m.began[p]; !ok {
				m.began[p] = id
			}
		}
		m.round = id
	case 2:
		id, index := m.q.Last()-uint64(r.IntN(2)), uint64(r.IntN(20))
		m.q.Confirmed(id, index)
		if id == m.round && id != 0 {
			m.index[id], m.round = index, 0
		}
	case 3:
		m.apply(uint64(r.IntN(20)))
	}
}

// apply tells promises as of an index, in the order in which they were made: each was confirmed by
// the first round that began after it, and the state is that of the round's index or later.
func (m *model) apply(applied uint64) {
	for {
		batch, index, ok := m.q.Release(applied)
		if !ok {
			break
		}
		for _, p := range batch {
			at, confirmed := m.index[m.began[p]]
			if p != m.told || !confirmed || index != at || at > applied {
				m.t.Fatalf("promise %d is told at %d, applied %d: want promise %d, confirmed %v at %d",
					p, index, applied, m.told, confirmed, at)
			}
			delete(m.began, p)
			m.told++
		}
		m.q.Reuse(batch)
	}
	if id, ok := m.began[m.told]; ok { // the oldest has to wait
		if at, confirmed := m.index[id]; confirmed && at <= applied {
			m.t.Fatalf("promise %d is confirmed at %d and not told at %d", m.told, at, applied)
		}
	}
}

// Goal: whatever happens in which order, no promise is told too early, twice, or before one that
// was made earlier, and none is forgotten. Method: random steps beside a model that knows each
// promise; at the end of the term all that were not told come back.
func TestModel(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		m := &model{
			t: t, q: After[promises](seed), began: make(map[int]uint64), index: make(map[uint64]uint64),
		}
		for range 500 {
			m.step(r)
		}
		var left, want []int
		for _, b := range m.q.Close() {
			left = append(left, b...)
		}
		for p := m.told; p < m.made; p++ {
			want = append(want, p)
		}
		if !slices.Equal(left, want) {
			t.Fatalf("seed %d: left are %v, want %v", seed, left, want)
		}
		if m.told == 0 || m.q.HasNext() {
			t.Errorf("seed %d: %d were told; something waits: %v", seed, m.told, m.q.HasNext())
		}
	}
}
