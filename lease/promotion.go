package lease

// promotion tracks a new primary's progress through the leases that existed before it was promoted.
// The primary starts timing them in several steps, since there may be millions. A lease gets the
// same instants whichever step times it, because every operation on a lease first makes sure that
// it is timed.
//
// Invariant: every lease in a slot below reached, or at or above end, is timed.
type promotion struct {
	silence      func(TTL) TTL
	spread       *spreader
	reached, end uint32
}

// promote starts timing all existing leases, as of the instant when the tracker was created.
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

// meetMore starts timing as many leases as one step allows.
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

// meet starts timing the lease in a slot, if it existed before the promotion and is not timed yet.
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
