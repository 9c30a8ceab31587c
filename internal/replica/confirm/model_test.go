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

// model tracks each promise individually.
type model struct {
	t        *testing.T
	q        Queue[promises]
	round    uint64            // the round in flight; 0 if none
	began    map[int]uint64    // the round that confirms each promise: the first to begin after it
	index    map[uint64]uint64 // index of each confirmed round
	made     int               // number of promises made
	released int               // number of promises released
}

// step performs a random action: it makes a promise, starts a round, confirms this or another
// round, or applies.
func (m *model) step(r *rand.Rand) {
	switch r.IntN(4) {
	case 0:
		m.q.Next = append(m.q.Next, m.made)
		m.made++
	case 1:
		id, ok := m.q.Begin()
		if want := m.round == 0 && m.made > len(m.began)+m.released; ok != want {
			m.t.Fatalf("round begins: %v, want %v", ok, want)
		}
		if !ok {
			return
		}
		for p := m.released; p < m.made; p++ {
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

// apply releases promises in order. Each promise must be confirmed by the first round that began
// after it, and the applied index must have reached the round's index.
func (m *model) apply(applied uint64) {
	for {
		batch, index, ok := m.q.Release(applied)
		if !ok {
			break
		}
		for _, p := range batch {
			at, confirmed := m.index[m.began[p]]
			if p != m.released || !confirmed || index != at || at > applied {
				m.t.Fatalf("promise %d released at %d, applied %d: want promise %d, confirmed %v at %d",
					p, index, applied, m.released, confirmed, at)
			}
			delete(m.began, p)
			m.released++
		}
		m.q.Reuse(batch)
	}
	if id, ok := m.began[m.released]; ok { // the oldest promise is waiting
		if at, confirmed := m.index[id]; confirmed && at <= applied {
			m.t.Fatalf("promise %d, confirmed at %d, is not released at %d", m.released, at, applied)
		}
	}
}

// TestModel checks that, for any order of steps, no promise is released too early, twice or out of
// order, and none is lost. At the end of the term, Close returns the remaining promises.
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
		for p := m.released; p < m.made; p++ {
			want = append(want, p)
		}
		if !slices.Equal(left, want) {
			t.Fatalf("seed %d: left %v, want %v", seed, left, want)
		}
		if m.released == 0 || m.q.HasNext() {
			t.Errorf("seed %d: %d released; still waiting: %v", seed, m.released, m.q.HasNext())
		}
	}
}
