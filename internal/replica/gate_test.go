package replica

import (
	"fmt"
	"testing"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// TestWriteWaitsForAcks checks that a write to a cached key waits until the caches on all members
// have dropped the key (C1). Meanwhile the key can be read but not cached, and other keys can be
// written.
func TestWriteWaitsForAcks(t *testing.T) {
	c := caching(t)
	near, far := c.hold(c.members[1], 1, 5000), c.hold(c.members[2], 2, 5000)
	near.mustFill("c1")
	far.mustFill("c1")
	far.mustFill("c2")
	w := c.put(c.members[3], "c1", 0)
	second := c.put(c.members[1], "c1", 0)
	c.want("write that caches have not acknowledged", w, "")
	c.want("another key", c.put(c.members[3], "c3", 0), "revision")
	c.want("key without holds", c.put(c.members[2], "x", 0), "revision")
	if far.fill("c1") || near.fill("c1") {
		t.Error("a key was cached while a write of it waited")
	}
	near.ack("c1")
	c.want("write that one cache has not acknowledged", w, "")
	far.ack("c1")
	c.want("write", w, "revision")
	c.want("next write", second, "revision")
	far.mustFill("c1")
	if drop, _ := near.invalidations(); len(drop) > 0 {
		t.Errorf("a cache got another invalidation: %q", drop)
	}
	c.want("write of a key that is no longer cached", c.put(c.members[2], "c3", 0), "revision")
}

// TestAllCommandsAreGated checks that the gate holds back every type of command: ranges, both
// branches of transactions, nested transactions, and the end of a lease with its keys (C1).
func TestAllCommandsAreGated(t *testing.T) {
	put := fsm.Op{Put: &fsm.Put{Key: "c1"}}
	never := []fsm.Compare{{Key: "no", Target: fsm.TargetVersion, Number: 7}}
	for name, cmd := range map[string]fsm.Command{
		"delete":          &fsm.DeleteRange{Key: "c1"},
		"delete of range": &fsm.DeleteRange{Key: "a", End: "z"},
		"delete of all":   &fsm.DeleteRange{Key: "a", End: "\x00"},
		"then":            &fsm.Txn{Then: []fsm.Op{put}},
		"else":            &fsm.Txn{Compare: never, Else: []fsm.Op{put}},
		"not taken":       &fsm.Txn{Compare: never, Then: []fsm.Op{put}},
		"nested":          &fsm.Txn{Then: []fsm.Op{{Txn: &fsm.Txn{Else: []fsm.Op{put}}}}},
		"revoke":          &fsm.Revoke{ID: 9},
		"revoke in txn":   &fsm.Txn{Then: []fsm.Op{{Revoke: &fsm.Revoke{ID: 9}}}},
		"once":            &fsm.Once{Number: 1, Command: &fsm.Put{Key: "c1"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := caching(t)
			k := c.hold(c.members[2], 1, 5000)
			c.propose(c.members[1], &fsm.Grant{Terms: lease.Terms{ID: 9, TTL: 5000}}, "grant")
			c.run()
			c.want("attach", c.put(c.members[1], "c1", 9), "revision")
			k.mustFill("c1")
			w := c.command(c.members[3], cmd)
			c.want("before the acknowledgement", w, "")
			k.invalidations()
			k.c.pass(2500) // the invalidation was lost and is resent
			if drop, n := k.invalidations(); len(drop) != 1 {
				t.Fatalf("invalidated %q", drop)
			} else {
				k.p.r.AckCache(AckCache{ID: 1, Token: k.token, Term: n.Term, Seq: n.Seq, Open: k.term})
			}
			c.run()
			if got := w(); got == "" {
				t.Error("not done after the acknowledgement")
			}
		})
	}
}

// TestDeadCacheDelaysByItsTime checks that an unresponsive cache delays a write by at most the
// remaining time of its lease (C1). The lease is not renewed in the meantime, and no other renewal
// or write waits (T15).
func TestDeadCacheDelaysByItsTime(t *testing.T) {
	c := caching(t)
	k, other := c.hold(c.members[2], 1, 3000), c.hold(c.members[3], 2, 3000)
	k.mustFill("c1")
	other.mustFill("c2")
	c.pass(1000)
	w := c.put(c.members[3], "c1", 0)
	began := c.now
	c.renew(c.members[2], 1)
	c.renew(c.members[3], 2)
	c.run()
	if c.asks["2: renew 1"] != "" {
		t.Fatalf("renewed with an acknowledgement pending: %s", c.asks["2: renew 1"])
	}
	if got := c.asks["3: renew 2"]; got != "ttl 3000" {
		t.Fatalf("another cache waits: %q", got)
	}
	c.want("another cache's key", c.put(c.members[1], "c5", 0), "revision")
	for w() == "" && c.now < began+5000 {
		c.pass(10)
	}
	// The lease was granted before the test began to count, and a second has passed.
	if d := c.now - began; d < 1900 || d > 2020 {
		t.Errorf("the write waited %d ms, want about 2000", d)
	}
	c.pass(100)
	if got := c.asks["2: renew 1"]; got != lease.ErrNotFound.Error() {
		t.Errorf("renewal: %q", got)
	}
	if _, ok := c.members[1].r.lessor.Lookup(2); !ok || c.members[1].r.CacheStats().Caches != 1 {
		t.Error("another lease has ended, or the dead one still has holds")
	}
}

// TestRenewalWaitsForAck checks that a parked renewal proceeds after the cache's acknowledgment,
// and that the TTL counts from that time.
func TestRenewalWaitsForAck(t *testing.T) {
	c := caching(t)
	k := c.hold(c.members[2], 1, 3000)
	k.mustFill("c1")
	c.pass(1000)
	w := c.put(c.members[1], "c1", 0)
	timed := &Proposal{Command: &fsm.Put{Key: "c1"}, Owner: "timed"}
	c.members[1].r.Propose(timed)
	c.renew(c.members[2], 1)
	c.pass(1800)
	if drop, n := k.invalidations(); len(drop) != 1 {
		t.Fatalf("invalidated %q", drop)
	} else {
		k.p.r.AckCache(AckCache{ID: 1, Token: k.token, Term: n.Term, Seq: n.Seq, Open: k.term})
	}
	c.run()
	c.want("write", w, "revision")
	if got := c.asks["2: renew 1"]; got != "ttl 3000" {
		t.Fatalf("renewal: %q", got)
	}
	c.pass(2900)
	if _, ok := c.members[1].r.lessor.Lookup(1); !ok {
		t.Error("the renewal does not count from its execution")
	}
	if were := c.members[1].were; len(were) != 1 || were[0].Lease.Owner != "owner 1" ||
		were[0].Waited != 1800 {
		t.Errorf("slow caches: %+v", were)
	}
	if w := timed.Wait; w != (CacheWait{1800, w.Until, 1, 1}) || w.Until == 0 || timed.Index == 0 {
		t.Errorf("write waited: %+v, in entry %d", w, timed.Index)
	}
}

// TestExpiryIsGated checks that a lease with cached keys expires once the caches have dropped them,
// in its own entry (C1, T20). Leases with other keys that end at the same time do not wait.
func TestExpiryIsGated(t *testing.T) {
	c := caching(t)
	k := c.hold(c.members[2], 1, 8000)
	for id, key := range map[lease.ID]string{11: "c1", 12: "c2", 13: "x"} {
		c.propose(c.members[1], &fsm.Grant{Terms: lease.Terms{ID: id, TTL: 2000}}, "grant")
		c.run()
		c.want("attach", c.put(c.members[1], key, id), "revision")
	}
	k.mustFill("c1")
	k.mustFill("c2")
	c.pass(2500)
	there := func(id lease.ID) bool {
		_, ok := c.members[1].r.lessor.Lookup(id)
		return ok
	}
	if !there(11) || !there(12) || there(13) {
		t.Fatalf("lease 11 %v, 12 %v, 13 %v", there(11), there(12), there(13))
	}
	if s := c.members[1].r.Status(); s.Overdue < 300 {
		t.Errorf("overdue leases are not reported: %+v", s)
	}
	c.renew(c.members[3], 11)
	c.run()
	if got := c.asks["3: renew 11"]; got != "" {
		t.Errorf("an expiring lease was renewed: %q", got)
	}
	k.ack("c1", "c2")
	if there(11) || there(12) {
		t.Error("not expired after the acknowledgement")
	}
	if got := c.asks["3: renew 11"]; got != lease.ErrNotFound.Error() {
		t.Errorf("renewal: %q", got)
	}
}

// TestNewLeaderHonoursHolds checks that a new leader treats every cache as wide until the cache has
// reported its keys and confirmed that it is open (C1). An old report alone does not count.
func TestNewLeaderHonoursHolds(t *testing.T) {
	c := caching(t)
	k := c.hold(c.members[2], 1, 9000)
	k.mustFill("c1")
	c.succeed(3)
	w := c.put(c.members[3], "c1", 0)
	free := c.put(c.members[3], "c2", 0)
	c.want("write of a key that an earlier cache may have", w, "")
	c.want("another write", free, "")
	if drop, _ := k.invalidations(); len(drop) > 0 {
		t.Errorf("sent %q although the cache's location is unknown", drop)
	}
	if k.fill("c3") {
		t.Error("cached without opening the cache in the new term")
	}
	k.invalidations() // this invalidation is lost
	if text := k.ask("c1"); text == "" || k.term < 3 {
		t.Fatalf("open: %s", text)
	}
	c.want("before the cache confirmed", free, "")
	k.ack("c1", "c2") // with Open set
	c.want("write", w, "revision")
	c.want("other write", free, "revision")
	if s := c.members[3].r.CacheStats(); s.Wide != 0 || s.Open != 1 {
		t.Errorf("%+v", s)
	}
	c.want("a key that it does not have", c.put(c.members[3], "c4", 0), "revision")
	k.mustFill("c1")
}

// TestLeaderChangeDuringPendingWrite checks that a write waiting for a cache when its leader dies
// waits for the same cache at the next leader.
func TestLeaderChangeDuringPendingWrite(t *testing.T) {
	c := caching(t)
	k := c.hold(c.members[2], 1, 9000)
	k.mustFill("c1")
	w := c.put(c.members[2], "c1", 0)
	c.succeed(3)
	c.want("write", w, "")
	k.invalidations()
	k.ask("c1")
	k.ack("c1")
	c.want("write", w, "revision")
	for _, id := range []uint64{2, 3} {
		if kv := c.members[id].r.Machine().View().KV.Get("c1"); kv == nil || kv.Version != 1 {
			t.Errorf("member %d: %+v", id, kv)
		}
	}
}

// TestGateClosedBeforePrimary checks that no command passes the gate before the leader has applied
// an entry of its own term, because until then it might not know all holds (T6).
func TestGateClosedBeforePrimary(t *testing.T) {
	m := start(t)
	if err := m.r.Campaign(); err != nil {
		t.Fatal(err)
	}
	for i := 0; i < 10 && !m.r.leading; i++ {
		m.persist()
		m.take()
	}
	if !m.r.leading || m.r.primary {
		t.Fatalf("leading %v, primary %v", m.r.leading, m.r.primary)
	}
	p := &Proposal{Command: &fsm.Put{Key: "c1"}}
	m.r.Propose(p)
	m.take()
	if len(m.r.lead.gate.early) != 1 || len(m.r.lead.queue.waiting) > 0 {
		t.Errorf("%d commands wait at the gate, %d for the log", len(m.r.lead.gate.early),
			len(m.r.lead.queue.waiting))
	}
	m.settle()
	if len(m.proposals) != 1 || p.Err != nil {
		t.Errorf("%d answers, %v", len(m.proposals), p.Err)
	}
}

// TestFillWaitsForCommandInFlight covers a command that was already in flight when a hold began,
// and so was not checked against that hold. Nothing can be cached until the command has completed
// (C1).
func TestFillWaitsForCommandInFlight(t *testing.T) {
	c := caching(t)
	p := c.members[1]
	p.stuck, c.members[2].stuck, c.members[3].stuck = true, true, true
	grant := c.command(p, &fsm.Grant{
		Terms: lease.Terms{ID: 1, TTL: 5000}, Holds: []keyrange.Range{{Key: "c", End: "d"}},
	})
	early := c.put(c.members[2], "c1", 0)
	c.want("grant", grant, "")
	// The grant is synced now, while the put waits for its own sync.
	for _, id := range c.ids() {
		c.persist(c.members[id])
	}
	c.run()
	for i := 0; i < 5 && grant() == ""; i++ {
		for _, id := range c.ids() {
			c.persist(c.members[id])
		}
		c.run()
	}
	c.want("grant", grant, "revision")
	info, _ := p.r.lessor.Lookup(1)
	k := &cache{c: c, p: p, id: 1, token: info.Token}
	k.open()
	if early() == "" && k.fill("c1") {
		t.Fatal("cached while a write from before the hold is in flight")
	}
	for _, id := range c.ids() {
		c.members[id].stuck = false
	}
	c.run()
	c.want("write", early, "revision")
	k.mustFill("c1")
}

// TestFillWaitsForDelayedCommand checks the same for a command in the commit delay when the hold
// begins (C1).
func TestFillWaitsForDelayedCommand(t *testing.T) {
	c := caching(t)
	p := c.members[1]
	p.r.cfg.CommitDelay = true
	for _, id := range c.ids() {
		c.members[id].stuck = true
	}
	grant := c.command(p, &fsm.Grant{
		Terms: lease.Terms{ID: 1, TTL: 5000}, Holds: []keyrange.Range{{Key: "c", End: "d"}},
	})
	early := c.put(p, "c1", 0)
	for _, id := range []uint64{2, 3, 1} { // the leader's own disk comes last
		c.persist(c.members[id])
		c.run()
	}
	c.want("grant", grant, "revision")
	if !p.r.Delayed() {
		t.Fatal("the put is not delayed")
	}
	info, _ := p.r.lessor.Lookup(1)
	k := &cache{c: c, p: p, id: 1, token: info.Token}
	k.open()
	if k.fill("c1") {
		t.Fatal("cached while a write from before the hold is delayed")
	}
	for _, id := range c.ids() {
		c.members[id].stuck = false
	}
	p.r.EndDelay()
	c.run()
	c.want("write", early, "revision")
	k.mustFill("c1")
}

// TestRefreshWithdrawsExpiries checks that expiries waiting for caches are withdrawn when the clock
// jumps (T10, T5). All leases get their full TTL again, and no earlier decision takes effect.
func TestRefreshWithdrawsExpiries(t *testing.T) {
	c := caching(t)
	k := c.hold(c.members[1], 1, 60_000)
	c.propose(c.members[1], &fsm.Grant{Terms: lease.Terms{ID: 9, TTL: 2000}}, "grant")
	c.run()
	c.want("attach", c.put(c.members[1], "c1", 9), "revision")
	k.mustFill("c1")
	c.now += 2500 // in one step, so that no checkpoint is written first
	c.run()
	r := c.members[1].r
	if r.lead.gate.singles.list.Len() != 1 {
		t.Fatalf("%d leases wait for caches to expire", r.lead.gate.singles.list.Len())
	}
	r.Advance(c.now)
	r.Refresh()
	c.run()
	if r.Status().Refreshing || r.lead.gate.singles.any() {
		t.Fatal("the clock is still not trusted")
	}
	k.invalidations()
	k.p.r.AckCache(AckCache{ID: 1, Token: k.token, Term: r.term, Seq: 1, Open: k.term})
	c.renew(c.members[2], 9)
	c.run()
	if got := c.asks["2: renew 9"]; got != "ttl 2000" {
		t.Errorf("lease with a withdrawn expiry: %q", got)
	}
	c.pass(1900)
	if _, ok := r.lessor.Lookup(9); !ok {
		t.Error("expired by a decision from before the jump")
	}
	c.pass(3000)
	if drop, n := k.invalidations(); len(drop) > 0 {
		k.p.r.AckCache(AckCache{ID: 1, Token: k.token, Term: n.Term, Seq: n.Seq, Open: k.term})
		c.run()
	}
	if _, ok := r.lessor.Lookup(9); ok {
		t.Error("never expires")
	}
}

// jumpWhileExpiring makes the clock jump while the expiry of a lease is in the log and the disks
// are stuck. It calls the function during after the disks get stuck and before the clock jumps.
// Leases get their full TTL again once the outcome of the expiry is known.
func (c *cluster) jumpWhileExpiring(during func()) {
	c.t.Helper()
	c.propose(c.members[1], &fsm.Grant{Terms: lease.Terms{ID: 8, TTL: 1000}}, "grant")
	c.run()
	for _, id := range c.ids() {
		c.members[id].stuck = true
	}
	during()
	c.run()
	c.now += 1500
	c.run()
	c.now += 10_000
	for _, id := range c.ids() {
		c.members[id].r.Advance(c.now)
		c.members[id].r.Refresh()
	}
	c.run()
	if !c.members[1].r.Status().Refreshing {
		c.t.Fatal("the clock is trusted")
	}
}

// unstick lets the syncs of all members finish.
func (c *cluster) unstick() {
	c.t.Helper()
	for _, id := range c.ids() {
		c.members[id].stuck = false
		c.persist(c.members[id])
	}
	c.run()
}

// TestCacheWhileClockIsNotTrusted checks that no cache's lease counts as ended while the clock is
// not trusted (C1, T10).
func TestCacheWhileClockIsNotTrusted(t *testing.T) {
	c := caching(t)
	k := c.hold(c.members[2], 1, 3000)
	k.mustFill("c1")
	var w func() string
	c.jumpWhileExpiring(func() { w = c.put(c.members[3], "c1", 0) })
	c.unstick()
	if c.members[1].r.Status().Refreshing {
		t.Fatal("the clock is never trusted again")
	}
	c.want("write of a cached key", w, "")
	k.ack("c1")
	c.want("write", w, "revision")
}

// TestGateIsBounded checks that only a bounded number of commands can wait at the gate. The rest
// are rejected and have no effect.
func TestGateIsBounded(t *testing.T) {
	c := caching(t)
	k := c.hold(c.members[1], 1, 60_000)
	k.mustFill("c1")
	p := c.members[1]
	const most = 16_384
	for i := range most + 10 {
		p.r.Propose(&Proposal{Command: &fsm.Put{Key: "c1"}, Owner: fmt.Sprint("put ", i)})
	}
	c.run()
	refused := 0
	for i := range most + 10 {
		if c.asks[fmt.Sprint("put ", i)] == ErrOverloaded.Error() {
			refused++
		}
	}
	if refused != 10 {
		t.Errorf("%d refused", refused)
	}
	k.ack("c1")
	if kv := p.r.Machine().View().KV.Get("c1"); kv == nil || kv.Version != most {
		t.Errorf("%+v, want version %d", kv, most)
	}
}

// TestFillBeforeLeaderHasApplied covers a member that acknowledges a write before the leader, whose
// disk is slow, has applied it. Until the leader has applied it, the key can be read but not
// cached.
func TestFillBeforeLeaderHasApplied(t *testing.T) {
	c := caching(t)
	k := c.hold(c.members[2], 1, 5000)
	c.members[1].stuck = true
	w := c.put(c.members[2], "c1", 0)
	c.want("write that two of three members have", w, "revision")
	q := &Read{
		Fill:  &Fill{ID: k.id, Token: k.token, Ranges: []keyrange.Range{{Key: "c1"}}},
		Owner: c.ask(k.p, "early"),
	}
	k.p.r.Read(q)
	c.run()
	c.members[1].stuck = false
	c.run()
	if c.asks["2: early"] == "" || q.Fill.Term != 0 {
		t.Errorf("read %q, cacheable in term %d", c.asks["2: early"], q.Fill.Term)
	}
	k.mustFill("c1")
}

// TestSinglesInOrder checks that the most overdue of the leases that expire singly is reported,
// regardless of the order in which they are added and removed.
func TestSinglesInOrder(t *testing.T) {
	var l singles
	var all []*single
	for _, expiry := range []lease.Instant{50, 30, 40, 60, 30} {
		s := &single{decided: 70, due: lease.Due{Late: lease.TTL(70 - expiry)}}
		l.add(s)
		all = append(all, s)
	}
	for i, want := range []lease.TTL{70, 70, 70, 60, 40} {
		if got := l.overdue(100); got != want {
			t.Errorf("%d gone: overdue for %d, want %d", i, got, want)
		}
		l.remove(all[[]int{0, 1, 4, 2, 3}[i]])
	}
	if l.any() || l.overdue(100) != 0 {
		t.Error("all are gone")
	}
}
