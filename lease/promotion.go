package lease

// promotion is what a primary has yet to learn of the leases that were there before it: those of
// millions are not met in one step. Nobody can tell in which step a lease is met, because it is
// given the same instants then as in the first, and because everything that is done with a
// lease begins with that.
//
// Invariant: a lease in a slot below reached, or from end on, is met.
type promotion struct {
	silence      func(TTL) TTL
	spread       *spreader
	reached, end uint32
}

// promote has a tracker time all leases from its beginning on.
func (t *tracker) promote() {
	p := &promotion{
		silence: t.cfg.untended,
		spread:  newSpreader(t.cfg.SpreadRate, t.began), end: t.table.top,
	}
	if t.table.index.len > maxUntended {
		p.silence = t.cfg.silence
	}
	t.promotion = p
	t.meetMore()
}

// meetMore meets as many leases as there is time for at once.
func (t *tracker) meetMore() {
	p := t.promotion
	if p == nil {
		return
	}
	for to := min(p.end, p.reached+uint32(t.cfg.AtOnce)); p.reached < to; p.reached++ {
		if t.table.record(p.reached).id != 0 {
			t.meet(p.reached)
		}
	}
	if p.reached == p.end {
		t.promotion = nil
	}
}

// meet begins to time the lease in a slot, if it was there before this member was primary and is
// not timed yet.
func (t *tracker) meet(slot uint32) {
	p := t.promotion
	if p == nil || slot < p.reached || slot >= p.end || t.timings.get(slot).expiry != 0 {
		return
	}
	r := t.table.record(slot)
	expiry := t.began.after(r.ttl)
	if r.remaining != 0 {
		c := t.countdown.grow(slot)
		if *c == 0 {
			*c = t.counting.after(r.remaining)
		}
		expiry = *c
	}
	t.resume(slot, p.spread.spread(expiry), t.began.after(p.silence(r.ttl)))
}
