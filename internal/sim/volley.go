package sim

import "leasehold.dev/lease"

// enlist makes the clients of a plot.
func (w *world) enlist() {
	for range w.p.Plot.Volley {
		w.newClient(1).spawn((*thread).volley)
	}
}

// volley lives one lease after the other. Each is renewed for a while, in one of three
// ways, at one who leads or thinks so; and suddenly no more.
func (t *thread) volley() {
	ways := [...]func(*thread) style{
		(*thread).together, (*thread).nervous, (*thread).nervous, (*thread).late,
	}
	c, w := t.c, t.c.w
	for {
		c.at = w.anyMember()
		way := ways[w.rng.IntN(len(ways))](t)
		s := t.grant(lease.Terms{TTL: lease.TTL(way.ttl / Millisecond)})
		if s == nil {
			continue
		}
		s.rest()
		for !s.ended {
			t.turn()
			called := way.wait()
			if !called { // else it knows of no other
				t.turn()
			}
			if !t.renew(s) || called || w.chance(6) {
				break
			}
		}
		t.sleep(w.exp(way.ttl))
	}
}

// style is a way to renew a lease: wait waits for the next time, and reports whether that
// is to be the last.
type style struct {
	ttl  Time
	wait func() bool
}

// together renews when others do, so that several checkpoints are cleared in a row.
func (t *thread) together() style {
	w, beat := t.c.w, t.c.w.p.Plot.Beat
	ttl := max(500*Millisecond, Time((0.7+0.9*w.rng.Float64())*float64(beat)))
	return style{ttl, func() bool {
		t.sleep(beat - w.now%beat + w.exp(w.p.Delay+Millisecond))
		return false
	}}
}

// nervous renews before the lease is silent, and for the last time when there are two
// leaders.
func (t *thread) nervous() style {
	w := t.c.w
	ttl := w.between(Second, 4*Second)
	return style{ttl, func() bool {
		return w.injector.bell.listen(t, Time((0.1+0.2*w.rng.Float64())*float64(ttl)))
	}}
}

// late renews when the lease should have ended, and nobody knows yet.
func (t *thread) late() style {
	w := t.c.w
	ttl := w.between(500*Millisecond, 700*Millisecond)
	return style{ttl, func() bool {
		t.sleep(ttl + w.exp(200*Millisecond) - 20*Millisecond)
		return false
	}}
}

// bell wakes those who listen for it.
type bell struct{ listeners []func() }

// listen sleeps, and reports whether the thread was called before it had its fill.
func (b *bell) listen(t *thread, d Time) bool {
	called, token := false, t.token
	b.listeners = append(b.listeners, func() {
		if t.token == token && !t.dead {
			called = true
			t.wake(token)
		}
	})
	t.sleep(d)
	return called
}

// call wakes those who listen, soon.
func (b *bell) call(w *world) {
	all := b.listeners
	b.listeners = nil
	for _, f := range all {
		w.after(w.exp(80*Millisecond), f)
	}
}

// turn connects the client to one who leads or thinks so.
func (t *thread) turn() {
	if m := t.c.w.leader(); m != nil {
		t.c.at = m.id
	}
}
