package replica

import (
	"fmt"
	"testing"

	"leasehold.dev/internal/fsm"
)

// slow lists the slow caches reported to a member, and the earliest start.
func (c *cluster) slow(p *peer) string {
	text := ""
	for _, s := range p.slow {
		text += fmt.Sprintf("%s for %d ", s.Lease.Owner, s.Waited/1000)
	}
	return text
}

// wantSlow fails the test unless all running members report the same slow caches.
func (c *cluster) wantSlow(when, want string) {
	c.t.Helper()
	for _, id := range c.ids() {
		if p := c.members[id]; !p.down && c.slow(p) != want {
			c.t.Errorf("%s: member %d knows slow %q, want %q", when, id, c.slow(p), want)
		}
	}
}

// TestSlowCachesAreReplicated checks that every member, including learners, reports a slow cache
// from the time it is late until it acknowledges or its lease ends.
func TestSlowCachesAreReplicated(t *testing.T) {
	c := caching(t)
	c.pass(1000)
	c.propose(c.members[1], &fsm.AddMember{Member: fsm.Member{
		ID: 4, PeerURLs: []string{url(4)}, Learner: true,
	}}, "add")
	c.run()
	c.join(4)
	c.pass(300)
	k, dead := c.hold(c.members[2], 1, 60_000), c.hold(c.members[3], 2, 4000)
	k.mustFill("c1")
	dead.mustFill("c2")
	w := c.put(c.members[3], "c1", 0)
	c.pass(900)
	c.wantSlow("in time", "")
	c.pass(200)
	c.wantSlow("late", "owner 1 for 1 ")
	other := c.put(c.members[3], "c2", 0)
	c.pass(1900)
	c.wantSlow("both", "owner 1 for 2 owner 2 for 1 ")
	k.invalidations()
	k.open("c1")
	k.ack("c1")
	c.want("write", w, "revision")
	c.wantSlow("one answered", "owner 2 for 1 ")
	c.pass(2000)
	c.want("other write", other, "revision")
	c.wantSlow("none left", "")
}

// TestSlowCachesWithstandLoss checks that slow caches are reported despite lost messages and a new
// leader. At the new leader, a waiting write first waits another second.
func TestSlowCachesWithstandLoss(t *testing.T) {
	c := caching(t)
	k := c.hold(c.members[2], 1, 60_000)
	k.mustFill("c1")
	c.cut[link2{1, 3}] = true
	w := c.put(c.members[2], "c1", 0)
	c.pass(700)
	delete(c.cut, link2{1, 3})
	c.cut[link2{1, 2}] = true
	c.pass(500)
	if got := c.slow(c.members[2]); got != "" {
		t.Fatalf("an isolated member knows slow %q", got)
	}
	delete(c.cut, link2{1, 2})
	c.pass(1100)
	c.wantSlow("after the next report", "owner 1 for 2 ")
	c.succeed(3)
	c.wantSlow("new leader", "")
	c.pass(1100)
	c.wantSlow("late again", "owner 1 for 1 ")
	c.cut[link2{3, 2}] = true
	c.pass(100)
	p := c.members[2]
	for range slowSilence * 10 { // only this member ticks; it still believes that member 3 leads
		p.r.slow.tick(p.r.ticks, uint64(p.r.cfg.ElectionTicks))
		p.r.ticks++
	}
	p.r.slow.tick(p.r.ticks, uint64(p.r.cfg.ElectionTicks))
	c.run()
	if got := c.slow(p); got != "" {
		t.Errorf("a member isolated for long knows slow %q", got)
	}
	delete(c.cut, link2{3, 2})
	k.invalidations()
	k.open()
	k.ack("c1")
	c.want("write", w, "revision")
	c.wantSlow("none left", "")
}

// TestSlowCacheOfAnotherIncarnation checks that a report about a missing lease, or about another
// incarnation of a lease, is not attributed to the current one.
func TestSlowCacheOfAnotherIncarnation(t *testing.T) {
	c := caching(t)
	k := c.hold(c.members[2], 1, 60_000)
	r := c.members[2].r
	r.slow.set([]SlowNotice{{ID: 9, Token: k.token}, {ID: 1, Token: k.token + 1}}, r.ticks)
	if list := r.SlowCaches(); len(list) > 0 {
		t.Errorf("slow caches: %+v", list)
	}
}

// TestLastCacheWasSlow checks that the last slow cache is reported even if it acknowledges and is
// released before the leader's next step.
func TestLastCacheWasSlow(t *testing.T) {
	c := newCluster(t, 1)
	p := c.members[1]
	c.check(p.r.Campaign())
	c.run()
	k := c.hold(p, 1, 5000)
	k.mustFill("c1")
	w := c.put(p, "c1", 0)
	c.pass(1500)
	_, last := k.invalidations()
	p.r.AckCache(AckCache{ID: 1, Token: k.token, Term: last.Term, Seq: last.Seq, Open: k.term})
	p.r.lead.gate.caches.Release(k.token)
	out := p.r.Take()
	if s := out.WereSlow; len(s) != 1 || s[0].Lease.Owner != "owner 1" || len(out.Waits) != 1 {
		t.Errorf("slow caches: %+v; writes waited %v", s, out.Waits)
	}
	c.carry(p, out)
	c.run()
	c.want("write", w, "revision")
}

// TestSlowCachesAreRepeated checks that the leader reports slow caches to the other members once
// per election timeout. If there are none, it sends nothing.
func TestSlowCachesAreRepeated(t *testing.T) {
	c := caching(t)
	k := c.hold(c.members[1], 1, 60_000)
	k.mustFill("c1")
	last := 0
	c.lose = func(m *Message) bool {
		if m.To == 3 && m.Reply != nil && m.Reply.AboutSlow {
			last++
		}
		return false
	}
	if c.pass(3000); last != 0 {
		t.Errorf("reported %d times before there are any", last)
	}
	w := c.put(c.members[1], "c1", 0)
	for i := 0; i < 20 && last == 0; i++ {
		c.pass(100)
	}
	c.want("write", w, "")
	if c.pass(5000); last != 1+5 {
		t.Errorf("reported %d times", last)
	}
}
