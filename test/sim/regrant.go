package sim

import (
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// regranter grants successive incarnations of a lease under the same ID, and ends each at about the
// time it expires. So the decision to expire one incarnation may be applied after the next one has
// begun (T28).
func (t *thread) regranter() {
	c, w := t.c, t.c.w
	const ttl = 600
	id := 1<<41 + lease.ID(c.id)
	var ends Time // when the current incarnation ends, on the client's clock
	near := func(p *thread) {
		p.sleep(max(ends-c.local(), 0) + w.exp(w.p.Delay+w.p.Sync))
	}
	c.spawn(func(p *thread) {
		for {
			near(p)
			p.command(&fsm.Revoke{ID: id})
			p.think()
		}
	})
	for {
		ends = c.local() + ttl*Millisecond - 2*w.exp(w.p.Delay+w.p.Sync)
		t.command(&fsm.Grant{Terms: lease.Terms{ID: id, TTL: ttl}})
		near(t)
	}
}
