package sim

import (
	"fmt"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// This file has the sleep of machines: their boot clocks go on, and a machine that wakes up as
// the leader has measured nothing of what was due meanwhile (T10).

// suspend lets one machine sleep, or all of them.
func (n *injector) suspend() bool {
	if n.w.chance(4) {
		return n.sleepAll(n.length())
	}
	m, d := n.victim(), n.length()
	return m != nil && n.freeze(m, faultSuspend, d)
}

// sleepAll lets all machines sleep at once, as those that share a host do. Nobody is awake to
// elect another leader, so the one that sleeps leads on when it wakes up.
func (n *injector) sleepAll(d Time) bool {
	slept := false
	for _, m := range n.w.members {
		slept = m.proc != nil && n.freeze(m, faultSuspend, d) || slept
	}
	if slept {
		n.w.cover["all machines slept"]++
	}
	return slept
}

// sleepAtEnd lets all machines sleep just before everything is healed.
func (n *injector) sleepAtEnd() {
	w := n.w
	if w.p.Sleep > 0 {
		w.at(w.end-w.p.Calm-w.p.Sleep, func() { n.sleepAll(w.p.Sleep) })
	}
}

// granter grants leases with a long TTL and never renews them: each is to end on
// time, whichever machine slept meanwhile.
func (t *thread) granter() {
	w := t.c.w
	for {
		t.think()
		s := t.grant(lease.Terms{TTL: lease.TTL(w.between(5*Second, 20*Second) / Millisecond)})
		if s == nil {
			continue
		}
		s.rest()
		if w.chance(2) {
			key := fmt.Sprintf("k%d", w.rng.IntN(8))
			t.command(&fsm.Put{Key: key, Value: w.value(), Lease: s.terms.ID})
		}
	}
}
