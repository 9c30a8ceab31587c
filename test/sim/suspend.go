package sim

import (
	"fmt"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// This file suspends machines. Their boot clocks continue. A leader that resumes has not yet
// detected which leases became due in the meantime (T10).

// suspend suspends one machine or all machines.
func (n *injector) suspend() bool {
	if n.w.chance(4) {
		return n.sleepAll(n.length())
	}
	m, d := n.victim(), n.length()
	return m != nil && n.freeze(m, faultSuspend, d)
}

// sleepAll suspends all machines at the same time, as if they shared one host. No other leader can
// be elected, so the leader still leads when it resumes.
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

// sleepAtEnd suspends all machines just before all faults are healed.
func (n *injector) sleepAtEnd() {
	w := n.w
	if w.p.Sleep > 0 {
		w.at(w.end-w.p.Calm-w.p.Sleep, func() { n.sleepAll(w.p.Sleep) })
	}
}

// granter grants leases with a long TTL and never renews them. Each must end on time, no matter
// which machines are suspended.
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
