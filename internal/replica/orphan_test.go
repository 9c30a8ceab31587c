package replica

import (
	"testing"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// orphans returns the total number of orphans on all running members.
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

// TestRevokeDoesNotWait checks that another client's revocation, a hand-over and a resumption do
// not wait for caches. Writes wait until the old holder's cache has dropped everything (C1). After
// that, the orphan is gone.
func TestRevokeDoesNotWait(t *testing.T) {
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
				t.Error("it may cache more")
			}
			after := c.put(c.members[1], "c1", 0)
			c.want("earlier write", before, "")
			c.want("write", after, "")
			c.want("write of a key that it does not have", c.put(c.members[1], "c2", 0), "revision")
			c.renew(c.members[2], 1) // the new lease
			c.run()
			want := "ttl 5000"
			if name == "revoke" {
				want = notFound
			}
			if got := c.asks["2: renew 1"]; got != want {
				t.Errorf("renewal: %q, want %q", got, want)
			}
			drop, last := k.invalidations()
			if drop[0] != "c" {
				t.Errorf("invalidated %q", drop)
			}
			k.p.r.AckCache(AckCache{
				ID: 1, Token: k.token, Term: last.Term, Seq: last.Seq, Open: k.term,
			})
			c.run()
			c.want("earlier write", before, "revision")
			c.want("write", after, "revision")
			if n := c.members[1].r.CacheStats().Caches; n+c.orphans() != 0 {
				t.Errorf("%d caches, %d orphans", n, c.orphans())
			}
			if text := k.ask(); text != notFound {
				t.Errorf("reopened: %q", text)
			}
		})
	}
}

// TestOrphanEndsWithItsTime checks that an unresponsive orphan, which is never renewed, delays
// writers only until its lease would have expired. Then the orphan is dropped, even if no write is
// waiting. Until then it is reported as slow, with its owner.
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
		t.Errorf("the write finished %d ms after the grant of a lease of 4000 ms", d)
	}
	c.pass(100)
	c.wantSlow("no more", "")
	if s := c.members[1].were; len(s) != 1 || s[0].Lease.Owner != "owner 1" {
		t.Errorf("slow caches: %+v", s)
	}
	if c.orphans() != 0 {
		t.Errorf("%d orphans left", c.orphans())
	}
}

// TestOrphanWithNothing checks that an orphan is dropped soon, without an acknowledgment, if its
// cache was never open or had returned everything before its lease was revoked, as Close does.
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
	if drop, _ := k.invalidations(); len(drop) > 0 || c.orphans() != 0 {
		t.Errorf("invalidated %q, %d orphans", drop, c.orphans())
	}
	c.want("write", c.put(c.members[3], "c1", 0), "revision")
}

// TestNewLeaderHonoursOrphans checks that a new leader finds the orphans in the log or a snapshot,
// even after all members have restarted (C1). It gives each orphan its full time. An orphan that
// acknowledges is dropped immediately.
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
				k.p.invalidations = nil
				w := c.put(c.members[3], "c1", 0)
				c.want("write", w, "")
				if answers {
					k.open("c1")
					if k.fill("c2") {
						t.Error("it may cache more")
					}
					k.ack("c")
				}
				for w() == "" && c.now < began+9000 {
					c.pass(10)
				}
				if d := c.now - began; answers != (d == 0) || !answers && (d < 2900 || d > 3500) {
					t.Errorf("waited %d ms", d)
				}
				c.pass(100)
				if c.orphans() != 0 {
					t.Errorf("%d orphans left", c.orphans())
				}
			})
		}
	}
}

// TestRefreshOfOrphan checks that after a clock jump an orphan gets its full time again, like a
// lease (C1, T10).
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

// TestOrphanAndNewLease checks that a new lease with the same ID as an orphan has a separate cache.
func TestOrphanAndNewLease(t *testing.T) {
	c := caching(t)
	k := c.hold(c.members[2], 1, 5000)
	k.mustFill("c1")
	c.want("revoked", c.command(c.members[3], &fsm.Revoke{ID: 1}), "revision")
	heir := c.hold(c.members[3], 1, 5000)
	heir.mustFill("c2")
	w := c.put(c.members[1], "c1", 0)
	c.want("a key of the orphan", w, "")
	c.want("renewed", func() string {
		c.renew(heir.p, 1)
		c.run()
		return c.asks["3: renew 1"]
	}, "ttl 5000")
	k.ack("c")
	c.want("a former key of the orphan", w, "revision")
	w = c.put(c.members[1], "c2", 0)
	c.want("a key of the new lease", w, "")
	heir.ack("c2")
	c.want("a former key of the new lease", w, "revision")
	if n := c.members[1].r.CacheStats().Caches; n != 1 {
		t.Errorf("%d caches", n)
	}
}

// TestOrphanWhileClockIsNotTrusted covers a lease that is revoked while the clock is not trusted,
// by a command that was in the log when the clock jumped. Its holds delay writes for the lease's
// full time (C1, T10).
func TestOrphanWhileClockIsNotTrusted(t *testing.T) {
	c := caching(t)
	k := c.hold(c.members[2], 1, 3000)
	k.mustFill("c1")
	var revoked func() string
	c.jumpWhileExpiring(func() { revoked = c.command(c.members[1], &fsm.Revoke{ID: 1}) })
	c.unstick()
	c.want("revoked", revoked, "revision")
	w := c.put(c.members[3], "c1", 0)
	c.want("write of a key of the orphan", w, "")
	c.pass(2800)
	c.want("later", w, "")
	c.pass(600)
	c.want("when it ends", w, "revision")
}
