package replica

import (
	"slices"
	"testing"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// TestFollowerKeepsCommand checks that a command sent through a follower waits at the leader for a
// dead cache's remaining time and then completes (T15).
func TestFollowerKeepsCommand(t *testing.T) {
	c := caching(t)
	k := c.hold(c.members[2], 1, 30_000)
	k.mustFill("c1")
	w := c.put(c.members[3], "c1", 0)
	c.pass(25_000)
	c.want("while the cache may still answer", w, "")
	c.pass(6000)
	c.want("after the cache's time", w, "revision")
}

// TestLoggedRenewalWaitsForAck checks that renewals through the log wait for pending invalidations,
// like other commands.
func TestLoggedRenewalWaitsForAck(t *testing.T) {
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
	c.want("a grant with an idempotency key", grant, "")
	k.ack("c1")
	c.want("write", w, "revision")
	c.want("touch", touch, "revision")
	c.want("a grant that was a repeat", grant, lease.ErrExists.Error())
	c.want("another TTL", change, "revision")
}

// TestLastCacheEnds checks that when the last lease with holds ends, the commands waiting for its
// cache proceed.
func TestLastCacheEnds(t *testing.T) {
	c := caching(t)
	k := c.hold(c.members[2], 1, 2000)
	k.mustFill("c1")
	w := c.put(c.members[1], "c1", 0)
	touch := c.command(c.members[2], &fsm.Txn{Then: []fsm.Op{{Touch: &fsm.Touch{ID: 1}}}})
	c.want("touch", touch, "")
	c.pass(2500)
	c.want("write", w, "revision")
	c.want("renewal through the log of an ended lease", touch, lease.ErrNotFound.Error())
}

// TestRenewalAtGateOutlivesLeader checks that if a leader is deposed while a renewal waits for its
// cache's acknowledgment, the renewal goes to the next leader, whichever member its client uses
// (T15, T19). A holder never waits for an answer that cannot come.
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
			c.pass(2000) // longer than a renewal waits for a leader, but the renewal is not resent
			if n := len(c.members[1].r.lead.gate.parked.of[2]); n != 1 {
				t.Errorf("%d renewals wait, want one", n)
			}
			waits := slices.Clone(c.open)
			c.check(c.members[1].r.Transfer(3))
			c.run()
			c.pass(300)
			for _, k := range []*cache{near, far} {
				k.invalidations()
				k.open()
				k.ack("c1")
			}
			c.want("write", w, "revision")
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

// TestRenewalAtGateOutlivesPartition checks that the time a renewal spent waiting for its cache
// does not count as waiting for a leader. A deposed leader that was cut off forwards the renewal to
// the next leader.
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
		t.Fatal("it leads although it is cut off")
	}
	if got := c.asks["1: renew 1"]; got != "" {
		t.Fatalf("the renewal was given up: %q", got)
	}
	for _, l := range links {
		delete(c.cut, l)
	}
	c.pass(1000)
	if got := c.asks["1: renew 1"]; got != "ttl 60000" {
		t.Errorf("renewal: %q", got)
	}
}

// TestFollowerWaitsForEnd checks that a follower does not reject a renewal that it relayed while
// the renewal waits at the leader. The end of its lease is delayed by a dead cache. This applies to
// single and batched renewals, and to renewals of the cache's own lease.
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
	want("before the cache's time ends", "", "ttl 60000", "", "")
	for id, list := range c.members[1].r.lead.parked.of {
		if len(list) > 2 {
			t.Errorf("%d renewals of lease %d wait", len(list), id)
		}
	}
	c.pass(12_000)
	want("afterwards", notFound, "ttl 60000", notFound, notFound)
}
