package replica

import (
	"slices"
	"testing"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// TestFollowerKeepsCommand: a command through a follower waits at the leader for as long as a
// dead cache has left, and then has its outcome (T15).
func TestFollowerKeepsCommand(t *testing.T) {
	c := caching(t)
	k := c.hold(c.members[2], 1, 30_000)
	k.mustFill("c1")
	w := c.put(c.members[3], "c1", 0)
	c.pass(25_000)
	c.want("while the cache may answer", w, "")
	c.pass(6000)
	c.want("after its time", w, "revision")
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

// T15, T19: a renewal that waits for what its cache owes is asked of the next leader when this
// one leads no more, whether it came from a client of the leader or of another member; a
// holder never waits for an answer that nobody owes it.
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
			if n := len(c.members[1].r.lead.gate.parked.of[2]); n != 1 {
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

// A renewal that has waited for its cache for long has waited for no leader yet: a member
// that was its leader and is cut off asks the next one, and does not give up at once.
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

// TestFollowerWaitsForEnd: a renewal that waits at the leader, because the end of its lease
// waits for a dead cache, is not refused by the follower that relayed it, alone or in a batch:
// somebody leads. Nor is the renewal of the cache's own lease.
func TestFollowerWaitsForEnd(t *testing.T) {
	c := caching(t)
	k := c.hold(c.members[2], 1, 20_000)
	k.mustFill("c1")
	c.propose(c.members[1], &fsm.Grant{Terms: lease.Terms{ID: 2, TTL: 1000}}, "grant")
	c.propose(c.members[1], &fsm.Grant{Terms: lease.Terms{ID: 3, TTL: 60_000}}, "grant")
	c.run()
	c.put(c.members[1], "c1", 2)
	k.ack("c1")
	k.mustFill("c1")
	c.pass(1500)
	c.renew(c.members[3], 2)
	batch := c.renewAll(c.members[3], 3, 2, 1)
	c.pass(12_000)
	want := func(when, single string, together ...string) {
		t.Helper()
		for i, name := range append([]string{"3: renew 2"}, batch...) {
			if got, want := c.asks[name], append([]string{single}, together...)[i]; got != want {
				t.Errorf("%s: %s: %q, want %q", when, name, got, want)
			}
		}
	}
	want("before the cache's time is over", "", "ttl 60000", "", "")
	for id, list := range c.members[1].r.lead.parked.of {
		if len(list) > 2 {
			t.Errorf("%d renewals of lease %d wait", len(list), id)
		}
	}
	c.pass(12_000)
	want("after that", notFound, "ttl 60000", notFound, notFound)
}
