package sim

import "leasehold.dev/lease"

// addRenewers adds the clients configured by StaleLeader.
func (w *world) addRenewers() {
	for range w.p.StaleLeader.Renewers {
		w.newClient(1).spawn((*thread).renewer)
	}
}

// renewer uses successive leases. It renews each for a while, in one of three patterns, at a member
// that leads or believes that it leads, and then abandons it.
func (t *thread) renewer() {
	ways := [...]func(*thread) pattern{
		(*thread).together, (*thread).early, (*thread).early, (*thread).late,
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
			t.toLeader()
			called := way.wait()
			if !called { // otherwise the client knows no other member
				t.toLeader()
			}
			if !t.renew(s) || called || w.chance(6) {
				break
			}
		}
		t.sleep(w.exp(way.ttl))
	}
}

// pattern determines when a lease is renewed. wait blocks until the next renewal is due, and
// reports whether it is the last one.
type pattern struct {
	ttl  Time
	wait func() bool
}

// together renews at the same time as other clients, so that several checkpoints are cleared in
// succession.
func (t *thread) together() pattern {
	w, beat := t.c.w, t.c.w.p.StaleLeader.Period
	ttl := max(500*Millisecond, Time((0.7+0.9*w.rng.Float64())*float64(beat)))
	return pattern{ttl, func() bool {
		t.sleep(beat - w.now%beat + w.exp(w.p.Delay+Millisecond))
		return false
	}}
}

// early renews before the lease is silent. The last renewal happens while there are two leaders.
func (t *thread) early() pattern {
	w := t.c.w
	ttl := w.between(Second, 4*Second)
	return pattern{ttl, func() bool {
		return w.injector.twoLead.wait(t, Time((0.1+0.2*w.rng.Float64())*float64(ttl)))
	}}
}

// late renews when the lease should have ended but no member has detected that yet.
func (t *thread) late() pattern {
	w := t.c.w
	ttl := w.between(500*Millisecond, 700*Millisecond)
	return pattern{ttl, func() bool {
		t.sleep(ttl + w.exp(200*Millisecond) - 20*Millisecond)
		return false
	}}
}

// signal wakes waiting threads.
type signal struct{ waiting []func() }

// wait blocks for up to d, and reports whether notify was called.
func (b *signal) wait(t *thread, d Time) bool {
	called, token := false, t.token
	b.waiting = append(b.waiting, func() {
		if t.token == token && !t.dead {
			called = true
			t.wake(token)
		}
	})
	t.sleep(d)
	return called
}

// notify wakes the waiting threads after short delays.
func (b *signal) notify(w *world) {
	all := b.waiting
	b.waiting = nil
	for _, f := range all {
		w.after(w.exp(80*Millisecond), f)
	}
}

// toLeader connects the client to a member that leads or believes that it leads.
func (t *thread) toLeader() {
	if m := t.c.w.leader(); m != nil {
		t.c.at = m.id
	}
}
