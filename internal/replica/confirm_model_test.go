package replica

import (
	"math/rand/v2"
	"slices"
	"testing"

	"leasehold.dev/lease"
)

// roundsModel tracks each promise individually. Promises are numbered: each is a renewal of the lease
// with its number.
type roundsModel struct {
	t        *testing.T
	r        rounds
	round    uint64              // the round in flight; 0 if none
	began    map[lease.ID]uint64 // the round that confirms each promise: the first to begin after it
	index    map[uint64]uint64   // index of each confirmed round
	made     lease.ID            // number of promises made
	released lease.ID            // number of promises released
}

// step performs a random action: it makes a promise, starts a round, confirms this or another
// round, or applies.
func (m *roundsModel) step(rng *rand.Rand) {
	switch rng.IntN(4) {
	case 0:
		m.r.promise(m.made)
		m.made++
	case 1:
		id, ok := m.r.begin()
		if want := m.round == 0 && m.made > lease.ID(len(m.began))+m.released; ok != want {
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
		id, index := m.r.last-uint64(rng.IntN(2)), uint64(rng.IntN(20))
		m.r.confirmed(id, index)
		if id == m.round && id != 0 {
			m.index[id], m.round = index, 0
		}
	case 3:
		m.apply(uint64(rng.IntN(20)))
	}
}

// apply releases promises in order. Each promise must be confirmed by the first round that began
// after it, and the applied index must have reached the round's index.
func (m *roundsModel) apply(applied uint64) {
	for {
		b, ok := m.r.release(applied)
		if !ok {
			break
		}
		for _, p := range b.promised() {
			at, confirmed := m.index[m.began[p]]
			if p != m.released || !confirmed || b.index != at || at > applied {
				m.t.Fatalf("promise %d released at %d, applied %d: want promise %d, confirmed %v at %d",
					p, b.index, applied, m.released, confirmed, at)
			}
			delete(m.began, p)
			m.released++
		}
		m.r.reuse(b)
	}
	if id, ok := m.began[m.released]; ok { // the oldest promise is waiting
		if at, confirmed := m.index[id]; confirmed && at <= applied {
			m.t.Fatalf("promise %d, confirmed at %d, is not released at %d", m.released, at, applied)
		}
	}
}

// TestRoundsModel checks that, for any order of steps, no promise is released too early, twice or out of
// order, and none is lost. At the end of the term, close returns the remaining promises.
func TestRoundsModel(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		m := &roundsModel{
			t: t, r: rounds{last: seed},
			began: make(map[lease.ID]uint64), index: make(map[uint64]uint64),
		}
		for range 500 {
			m.step(rng)
		}
		var left, want []lease.ID
		for _, b := range m.r.close() {
			left = append(left, b.promised()...)
		}
		for p := m.released; p < m.made; p++ {
			want = append(want, p)
		}
		if !slices.Equal(left, want) {
			t.Fatalf("seed %d: left %v, want %v", seed, left, want)
		}
		if m.released == 0 || m.r.hasNext() {
			t.Errorf("seed %d: %d released; still waiting: %v", seed, m.released, m.r.hasNext())
		}
	}
}
