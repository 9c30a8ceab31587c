package replica

import (
	"slices"
	"testing"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// C1: what ends the hold of a cache, or gives it to another, waits until that cache has
// dropped all: a revocation by somebody else, a hand-over, a resumption.
func TestCacheIsClosedFirst(t *testing.T) {
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
			w := c.command(c.members[3], cmd(k.token))
			c.want("before the cache has dropped all", w, "")
			c.renew(c.members[2], 1)
			c.run()
			if got := c.asks["2: renew 1"]; got != "" {
				t.Errorf("renewed while it is being closed: %q", got)
			}
			k.ack("c") // where the range begins
			c.want("after that", w, "revision")
			if n := c.members[1].r.CacheStats().Caches; n != 0 {
				t.Errorf("%d caches", n)
			}
			c.want("a write", c.put(c.members[1], "c1", 0), "revision")
			if text := k.ask(); text != lease.ErrNotFound.Error() {
				t.Errorf("opened again: %q", text)
			}
		})
	}
}

// Renewals through the log wait like others for what the cache owes.
func TestTouchWaitsForAck(t *testing.T) {
	c := caching(t)
	k := c.hold(c.members[2], 1, 5000)
	k.mustFill("c1")
	w := c.put(c.members[1], "c1", 0)
	touch := c.command(c.members[2], &fsm.Txn{Then: []fsm.Op{{Touch: &fsm.Touch{ID: 1}}}})
	change := c.command(c.members[3], &fsm.ChangeTTL{ID: 1, Token: k.token, TTL: 6000})
	again := &fsm.Grant{Terms: lease.Terms{ID: 1, TTL: 5000, RequestID: "r"}}
	grant := c.command(c.members[2], again.Repeatable())
	c.want("touch", touch, "")
	c.want("another TTL", change, "")
	c.want("a grant that may be repeated", grant, "")
	k.ack("c1")
	c.want("the write", w, "revision")
	c.want("touch", touch, "revision")
	c.want("a grant that is none", grant, lease.ErrExists.Error())
	c.want("another TTL", change, "revision")
}

// The end of the last lease that holds anything lets those go on that wait for it.
func TestLastCacheEnds(t *testing.T) {
	c := caching(t)
	k := c.hold(c.members[2], 1, 2000)
	k.mustFill("c1")
	w := c.put(c.members[1], "c1", 0)
	touch := c.command(c.members[2], &fsm.Txn{Then: []fsm.Op{{Touch: &fsm.Touch{ID: 1}}}})
	c.want("touch", touch, "")
	c.pass(2500)
	c.want("the write", w, "revision")
	c.want("touch of a lease that has ended", touch, lease.ErrNotFound.Error())
}

// TestEvict: who revokes the lease of a cache that keeps writers waiting lets them go on as
// soon as that is safe: when the cache has answered, or its time has passed, in which nobody
// renews it any more. After that no write waits for it (C1, T15).
func TestEvict(t *testing.T) {
	for name, answers := range map[string]bool{"slow": true, "dead": false} {
		t.Run(name, func(t *testing.T) {
			c := caching(t)
			k := c.hold(c.members[2], 1, 3000)
			k.mustFill("c1")
			c.pass(100)
			began := c.now
			w := c.put(c.members[3], "c1", 0)
			c.pass(1200)
			slow := c.members[3].slow
			if len(slow) != 1 || slow[0].Lease.ID != 1 || slow[0].Lease.Owner != "owner 1" {
				t.Fatalf("slow caches: %+v", slow)
			}
			evicted := c.command(c.members[1], &fsm.Revoke{ID: slow[0].Lease.ID})
			c.renew(c.members[2], 1)
			c.run()
			c.want("the write before it is safe", w, "")
			c.want("the eviction before it is safe", evicted, "")
			if answers {
				_, n := k.told()
				k.p.r.AckCache(AckCache{ID: 1, Token: k.token, Term: n.Term, Seq: n.Seq, Open: k.term})
				c.run()
			} else {
				for w() == "" && c.now < began+5000 {
					c.pass(10)
				}
				if d := c.now - began; d < 2800 || d > 3020 {
					t.Errorf("the write waited for %d ms, where the lease had about 2900 left", d)
				}
				c.pass(100)
			}
			c.want("the write", w, "revision")
			if got := evicted(); got == "" {
				t.Error("the lease is not revoked")
			}
			if _, ok := c.members[1].r.lessor.Lookup(1); ok || k.fill("c1") {
				t.Error("the cache goes on")
			}
			if got := c.asks["2: renew 1"]; got != lease.ErrNotFound.Error() {
				t.Errorf("the renewal: %q", got)
			}
			c.want("the next write", c.put(c.members[3], "c1", 0), "revision")
		})
	}
}

// T15, T19: a renewal that waits for what its cache owes is asked of the next leader when this
// one leads no more, whether it came from a client of the leader or of another member; a
// holder never waits for an answer that nobody owes him.
func TestRenewalAtGateOutlivesLeader(t *testing.T) {
	for name, many := range map[string]bool{"one": false, "many": true} {
		t.Run(name, func(t *testing.T) {
			c := caching(t)
			near, far := c.hold(c.members[1], 1, 60_000), c.hold(c.members[2], 2, 60_000)
			near.mustFill("c1")
			far.mustFill("c1")
			w := c.put(c.members[3], "c1", 0)
			renew := func(p *peer, id lease.ID) {
				if many {
					c.renewAll(p, id)
				} else {
					c.renew(p, id)
				}
			}
			renew(c.members[1], 1)
			c.pass(2500)
			renew(c.members[2], 2)
			c.pass(2000) // longer than a renewal waits for a leader, and is not asked again
			if n := len(c.members[1].r.gate.parked[2]); n != 1 {
				t.Errorf("%d renewals wait, one was asked", n)
			}
			waits := slices.Clone(c.open)
			c.check(c.members[1].r.Transfer(3))
			c.run()
			c.pass(300)
			for _, k := range []*cache{near, far} {
				k.told()
				k.open()
				k.ack("c1")
			}
			c.want("the write", w, "revision")
			for _, q := range waits {
				if got := c.asks[q]; got != "ttl 60000" && q != "3: *fsm.Put" {
					t.Errorf("%s: %q", q, got)
				}
			}
			if len(c.open) > 0 {
				t.Errorf("not answered: %q", c.open)
			}
		})
	}
}

// A lease that was to get another holder and did not is renewed again, if its holder asked for
// that meanwhile: also when the answer of its cache came before the outcome.
func TestRenewalAfterVainResume(t *testing.T) {
	c := caching(t)
	k := c.hold(c.members[2], 1, 5000)
	k.mustFill("c1")
	c.pass(500)
	vain := c.command(c.members[3], &fsm.Resume{ID: 1, Secret: lease.Secret{7}})
	c.renew(c.members[2], 1)
	c.run()
	if got := c.asks["2: renew 1"]; got != "" {
		t.Fatalf("renewed while it is being closed: %q", got)
	}
	for _, id := range c.ids() {
		c.members[id].stuck = true
	}
	k.ack("c")
	if got := c.asks["2: renew 1"]; got != "" {
		t.Fatalf("renewed while it is being closed: %q", got)
	}
	for _, id := range c.ids() {
		c.members[id].stuck = false
	}
	c.run()
	c.want("resumption with a wrong secret", vain, "lease: ")
	if got := c.asks["2: renew 1"]; got != "ttl 5000" {
		t.Errorf("the renewal: %q", got)
	}
}

// A renewal that has waited for its cache for long has waited for no leader yet: whoever was its
// leader and is cut off asks the next one, and does not give up at once.
func TestRenewalAtGateOutlivesPartition(t *testing.T) {
	c := caching(t)
	k := c.hold(c.members[1], 1, 60_000)
	k.mustFill("c1")
	c.put(c.members[1], "c1", 0)
	c.renew(c.members[1], 1)
	c.pass(3500)
	links := []link2{{1, 2}, {2, 1}, {1, 3}, {3, 1}}
	for _, l := range links {
		c.cut[l] = true
	}
	c.pass(2500)
	if s := c.members[1].r.Status(); s.Leading {
		t.Fatal("it leads though it is cut off")
	}
	if got := c.asks["1: renew 1"]; got != "" {
		t.Fatalf("the renewal is given up: %q", got)
	}
	for _, l := range links {
		delete(c.cut, l)
	}
	c.pass(1000)
	if got := c.asks["1: renew 1"]; got != "ttl 60000" {
		t.Errorf("the renewal: %q", got)
	}
}
