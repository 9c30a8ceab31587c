package replica

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// What caches say through a follower goes in messages that the transport has room for, in order,
// and before what they are about to read.
func TestCacheWordsAreBounded(t *testing.T) {
	const n = 30
	long := []keyrange.Range{{Key: strings.Repeat("k", 1<<20)}}
	var a relay
	for range n {
		a.caches.acks = append(a.caches.acks, AckCache{ID: 1, Dropped: long})
		a.caches.opens = append(a.caches.opens, OpenCache{ID: 1, Has: long})
	}
	a.reads = []*Read{{Fill: &Fill{ID: 1, Ranges: long}}}
	last, acks, opens := uint64(0), 0, 0
	next := func(number uint64) {
		if number <= last {
			t.Errorf("%d after %d", number, last)
		}
		last = number
	}
	size := func(f *Forward) {
		t.Helper()
		if n := (&Message{Forward: f}).Size(); n > 2*maxCacheBytes {
			t.Errorf("a message of %d bytes", n)
		}
	}
	for rounds := 0; rounds == 0; {
		m := &Forward{}
		a.fill(m, 1)
		size(m)
		for i := range m.Acks {
			next(m.Acks[i].Number)
			acks++
		}
		for i := range m.Opens {
			next(m.Opens[i].Number)
			opens++
		}
		if m.Round != 0 {
			rounds++
			next(m.Round)
		}
		if !m.aboutCaches() {
			t.Fatalf("%d acknowledgements, %d openings, and nothing more", acks, opens)
		}
	}
	if acks != n || opens != n {
		t.Errorf("%d acknowledgements, %d openings", acks, opens)
	}
	opens = 0
	for now := uint64(100); opens < n; now++ {
		m := &Forward{}
		a.caches.again(m, now, 50)
		size(m)
		if opens += len(m.Opens); len(m.Opens) == 0 {
			t.Fatalf("%d openings are said again", opens)
		}
	}
}

// What caches are to drop goes to another member in messages that the transport has room for.
func TestInvalidationsAreBounded(t *testing.T) {
	c := caching(t)
	leader, key := c.members[1], "c"+strings.Repeat("k", 900<<10)
	const n = 12
	for id := range lease.ID(n) {
		c.hold(c.members[2], id+1, 10_000).mustFill(key)
	}
	leader.r.Propose(&Proposal{Command: &fsm.Put{Key: key}})
	out := leader.r.Take()
	told := 0
	for _, m := range out.Send {
		if m.Reply == nil {
			continue
		}
		told += len(m.Reply.Invalidations)
		if size := m.Size(); size > 2*maxCacheBytes {
			t.Errorf("a message of %d bytes", size)
		}
	}
	if told != n {
		t.Errorf("%d caches are told", told)
	}
}

// A follower without a leader takes a bounded number of commands and asks, and refuses the
// rest at once; all that it took is answered in time, and then it takes new ones.
func TestFollowerIsBounded(t *testing.T) {
	m := start(t, 2)
	for range maxForwarded + 10 {
		m.r.Propose(&Proposal{Command: &fsm.Put{Key: "k"}})
		m.r.Read(&Read{})
	}
	m.take()
	if len(m.proposals) != 10 || len(m.reads) != 10 {
		t.Fatalf("%d commands and %d reads refused, want 10 each", len(m.proposals), len(m.reads))
	}
	for _, p := range m.proposals {
		if !errors.Is(p.Err, ErrOverloaded) {
			t.Fatal(p.Err)
		}
	}
	for range 10 * patience {
		m.r.Tick()
		m.take()
	}
	if n := len(m.proposals); n != maxForwarded+10 {
		t.Errorf("%d commands answered of %d", n, maxForwarded+10)
	}
	if n := len(m.reads); n != maxForwarded+10 {
		t.Errorf("%d reads answered of %d", n, maxForwarded+10)
	}
	p := &Proposal{Command: &fsm.Put{Key: "k"}}
	m.r.Propose(p)
	m.take()
	if p.Err != nil {
		t.Errorf("refused with room again: %v", p.Err)
	}
}

// Very many commands and renewals through a follower at once are all answered, the commands
// in their order, though the first message of each is lost.
func TestManyThroughFollower(t *testing.T) {
	c := newCluster(t, 1, 2, 3)
	c.check(c.members[1].r.Campaign())
	c.run()
	const n = 3*groupMax + 1
	p := c.members[2]
	for i := range n {
		p.r.Propose(&Proposal{
			Command: &fsm.Put{Key: fmt.Sprint(i)}, Owner: fmt.Sprint("put ", i),
		})
		p.r.Renew(Renewal{ID: 99, Owner: fmt.Sprint("renew ", i)})
	}
	c.cut[link2{2, 1}] = true
	c.run()
	delete(c.cut, link2{2, 1})
	c.pass(3000)
	for i := range n {
		put, renew := c.asks[fmt.Sprint("put ", i)], c.asks[fmt.Sprint("renew ", i)]
		if want := fmt.Sprint("revision ", i+2); put != want || renew != "lease: not found" {
			t.Fatalf("put %d: %q, want %q; renewal: %q", i, put, want, renew)
		}
	}
	if f := &p.r.forward; len(f.sent)+len(f.queue)+len(p.r.asks.open) > 0 {
		t.Error("something is kept that was answered")
	}
}

// A command whose refusal is lost on its way has an outcome that is not known, and takes up
// no room for ever.
func TestLostRefusal(t *testing.T) {
	c := newCluster(t, 1, 2, 3)
	c.check(c.members[1].r.Campaign())
	c.run()
	c.members[1].r.ticks += 10 // it is not new any more, and refuses at once
	p := c.members[2]
	c.cut[link2{1, 2}] = true
	c.propose(p, &fsm.AddMember{Member: fsm.Member{ID: 4, PeerURLs: []string{url(4)}}}, "add")
	c.run()
	delete(c.cut, link2{1, 2})
	c.pass(8000)
	if got := c.asks["2: add"]; got != ErrLeaderChanged.Error() {
		t.Errorf("answered %q", got)
	}
	if n := len(p.r.forward.sent); n != 0 {
		t.Errorf("%d commands are kept that nobody waits for", n)
	}
	if n := len(c.members[1].r.machine.View().Members); n != 3 {
		t.Errorf("%d members", n)
	}
}
