package replica

import (
	"testing"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// orphans returns how many orphans the members that run know of, all together.
func (c *cluster) orphans() (n int) {
	for _, p := range c.members {
		if !p.down {
			for range p.r.machine.AllHolds().Orphans() {
				n++
			}
		}
	}
	return n
}

// What takes a lease from its holder before its time waits for nobody: a revocation by somebody
// else, a hand-over, a resumption. What the holder's cache may have outlives that: writes wait
// for it until it has dropped all (C1), and then nothing is left of it.
func TestRevokeWaitsForNobody(t *testing.T) {
	secret := lease.Secret{1}
	for name, cmd := range map[string]func(token lease.Token) fsm.Command{
		"revoke":    func(lease.Token) fsm.Command { return &fsm.Revoke{ID: 1} },
		"hand over": func(n lease.Token) fsm.Command { return &fsm.HandOver{ID: 1, Token: n} },
		"resume":    func(lease.Token) fsm.Command { return &fsm.Resume{ID: 1, Secret: secret} },
	} {
		t.Run(name, func(t *testing.T) {
			c := caching(t)
			c.propose(c.members[1], &fsm.Grant{
				Terms: lease.Terms{ID: 1, TTL: 5000, Secret: secret},
				Holds: []keyrange.Range{{Key: "c", End: "d"}},
			}, "grant")
			c.run()
			info, _ := c.members[1].r.lessor.Lookup(1)
			k := &cache{c: c, p: c.members[2], id: 1, token: info.Token}
			k.open()
			k.mustFill("c1")
			before := c.put(c.members[3], "c1", 0)
			c.want("at once", c.command(c.members[3], cmd(k.token)), "revision")
			if k.fill("c2") {
				t.Error("it may have more")
			}
			after := c.put(c.members[1], "c1", 0)
			c.want("a write of before", before, "")
			c.want("a write", after, "")
			c.want("a write to what it does not have", c.put(c.members[1], "c2", 0), "revision")
			c.renew(c.members[2], 1) // the lease of now
			c.run()
			want := "ttl 5000"
			if name == "revoke" {
				want = notFound
			}
			if got := c.asks["2: renew 1"]; got != want {
				t.Errorf("renewal of the lease: %q, want %q", got, want)
			}
			drop, last := k.told()
			if drop[0] != "c" {
				t.Errorf("told to drop %q", drop)
			}
			k.p.r.AckCache(AckCache{
				ID: 1, Token: k.token, Term: last.Term, Seq: last.Seq, Open: k.term,
			})
			c.run()
			c.want("the write of before", before, "revision")
			c.want("the write", after, "revision")
			if n := c.members[1].r.CacheStats().Caches; n+c.orphans() != 0 {
				t.Errorf("%d caches, %d orphans", n, c.orphans())
			}
			if text := k.ask(); text != notFound {
				t.Errorf("opened again: %q", text)
			}
		})
	}
}

// An orphan that does not answer keeps writers waiting until its lease would have ended, and no
// longer: nobody renews it. Then it goes, also if nobody waits; meanwhile it is told of as slow,
// by its name.
func TestOrphanEndsWithItsTime(t *testing.T) {
	c := caching(t)
	k, idle := c.hold(c.members[2], 1, 4000), c.hold(c.members[3], 2, 4000)
	k.mustFill("c1")
	idle.mustFill("c2")
	began := c.now
	c.pass(1000)
	c.want("revoked", c.command(c.members[1], &fsm.Revoke{ID: 1}), "revision")
	c.want("revoked", c.command(c.members[1], &fsm.Revoke{ID: 2}), "revision")
	w := c.put(c.members[3], "c1", 0)
	c.pass(1200)
	c.wantSlow("late", "owner 1 for 1 ")
	for w() == "" && c.now < began+9000 {
		c.pass(10)
	}
	if d := c.now - began; d < 3900 || d > 4050 {
		t.Errorf("the write is done %d ms after the grant of a lease of 4000 ms", d)
	}
	c.pass(100)
	c.wantSlow("no more", "")
	if s := c.members[1].were; len(s) != 1 || s[0].Lease.Owner != "owner 1" {
		t.Errorf("were slow: %+v", s)
	}
	if c.orphans() != 0 {
		t.Errorf("%d orphans stay", c.orphans())
	}
}

// What is known to have nothing is no orphan for long: a cache that never was open, and one that
// gave everything back before its lease was revoked, as Close does. Nobody has to answer.
func TestOrphanWithNothing(t *testing.T) {
	c := caching(t)
	k := c.hold(c.members[2], 1, 60_000)
	k.mustFill("c1")
	k.p.r.AckCache(AckCache{
		ID: 1, Token: k.token, Open: k.term, Dropped: []keyrange.Range{{Key: "c", End: "d"}},
	})
	c.want("closed", c.command(k.p, &fsm.Revoke{ID: 1, Token: k.token}), "revision")
	c.propose(c.members[1], &fsm.Grant{
		Terms: lease.Terms{ID: 2, TTL: 60_000}, Holds: []keyrange.Range{keyrange.All},
	}, "grant")
	c.propose(c.members[1], &fsm.Revoke{ID: 2}, "revoke")
	c.run()
	if drop, _ := k.told(); len(drop) > 0 || c.orphans() != 0 {
		t.Errorf("told to drop %q, %d orphans", drop, c.orphans())
	}
	c.want("a write", c.put(c.members[3], "c1", 0), "revision")
}

// C1: a new leader knows the orphans, from the log or from a snapshot, after a restart of all
// too, and gives each its full time; one that answers goes at once.
func TestNewLeaderHonoursOrphans(t *testing.T) {
	for name, change := range map[string]func(c *cluster){
		"log": func(c *cluster) { c.succeed(3) },
		"snapshot": func(c *cluster) {
			c.kill(c.members[3])
			c.snapshot(c.members[1])
			c.start(c.members[3])
			c.pass(500)
			c.succeed(3)
		},
		"restart": func(c *cluster) {
			for _, id := range c.ids() {
				c.snapshot(c.members[id])
				c.kill(c.members[id])
			}
			for _, id := range c.ids() {
				c.start(c.members[id])
			}
			c.check(c.members[3].r.Campaign())
			c.run()
		},
	} {
		for _, answers := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				c := caching(t)
				k := c.hold(c.members[2], 1, 3000)
				k.mustFill("c1")
				c.pass(1000)
				c.want("revoked", c.command(c.members[3], &fsm.Revoke{ID: 1}), "revision")
				change(c)
				began := c.now
				k.p.told = nil
				w := c.put(c.members[3], "c1", 0)
				c.want("a write", w, "")
				if answers {
					k.open("c1")
					if k.fill("c2") {
						t.Error("it may have more")
					}
					k.ack("c")
				}
				for w() == "" && c.now < began+9000 {
					c.pass(10)
				}
				if d := c.now - began; answers != (d == 0) || !answers && (d < 2900 || d > 3500) {
					t.Errorf("it has waited for %d ms", d)
				}
				c.pass(100)
				if c.orphans() != 0 {
					t.Errorf("%d orphans stay", c.orphans())
				}
			})
		}
	}
}

// C1, T10: after a jump of the clock an orphan gets its full time again, as leases do.
func TestRefreshOfOrphan(t *testing.T) {
	c := caching(t)
	k := c.hold(c.members[2], 1, 3000)
	k.mustFill("c1")
	c.want("revoked", c.command(c.members[3], &fsm.Revoke{ID: 1}), "revision")
	w := c.put(c.members[1], "c1", 0)
	c.now += 10_000
	for _, id := range c.ids() {
		c.members[id].r.Advance(c.now)
		c.members[id].r.Refresh()
	}
	c.pass(2900)
	c.want("after a jump of the clock", w, "")
	c.pass(300)
	c.want("after its time", w, "revision")
}

// Another lease of the ID of an orphan is a lease like any other: its cache is its own.
func TestOrphanAndHeir(t *testing.T) {
	c := caching(t)
	k := c.hold(c.members[2], 1, 5000)
	k.mustFill("c1")
	c.want("revoked", c.command(c.members[3], &fsm.Revoke{ID: 1}), "revision")
	heir := c.hold(c.members[3], 1, 5000)
	heir.mustFill("c2")
	w := c.put(c.members[1], "c1", 0)
	c.want("what the orphan has", w, "")
	c.want("renewed", func() string {
		c.renew(heir.p, 1)
		c.run()
		return c.asks["3: renew 1"]
	}, "ttl 5000")
	k.ack("c")
	c.want("what the orphan had", w, "revision")
	w = c.put(c.members[1], "c2", 0)
	c.want("what the heir has", w, "")
	heir.ack("c2")
	c.want("what the heir had", w, "revision")
	if n := c.members[1].r.CacheStats().Caches; n != 1 {
		t.Errorf("%d caches", n)
	}
}

// C1, T10: a lease is revoked while the clock is not trusted, by a command that was in the log when
// it jumped. What it held is waited for, for its full time.
func TestOrphanWhileClockIsNotTrusted(t *testing.T) {
	c := caching(t)
	k := c.hold(c.members[2], 1, 3000)
	k.mustFill("c1")
	var revoked func() string
	c.jumpWhileExpiring(func() { revoked = c.command(c.members[1], &fsm.Revoke{ID: 1}) })
	c.unstick()
	c.want("revoked", revoked, "revision")
	w := c.put(c.members[3], "c1", 0)
	c.want("a write of what the orphan has", w, "")
	c.pass(2800)
	c.want("and later", w, "")
	c.pass(600)
	c.want("at its end", w, "revision")
}
