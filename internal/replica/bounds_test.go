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

// TestCacheMessagesAreBounded checks that a follower forwards cache messages within the transport's
// limit, in order, and ahead of any reads that follow them.
func TestCacheMessagesAreBounded(t *testing.T) {
	const n = 30
	long := []keyrange.Range{{Key: strings.Repeat("k", 1<<20)}}
	a := newAsker()
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
			t.Errorf("message of %d bytes", n)
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
			t.Fatalf("%d acknowledgements, %d openings, then nothing", acks, opens)
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
			t.Fatalf("%d openings repeated", opens)
		}
	}
}

// TestInvalidationsAreBounded checks that messages with invalidations for another member stay
// within the transport's limit.
func TestInvalidationsAreBounded(t *testing.T) {
	c := caching(t)
	leader, key := c.members[1], "c"+strings.Repeat("k", 900<<10)
	const n = 12
	for id := range lease.ID(n) {
		c.hold(c.members[2], id+1, 10_000).mustFill(key)
	}
	leader.r.Propose(&Proposal{Command: &fsm.Put{Key: key}})
	out := leader.r.Take()
	count := 0
	for _, m := range out.Send {
		if m.Reply == nil {
			continue
		}
		count += len(m.Reply.Invalidations)
		if size := m.Size(); size > 2*maxCacheBytes {
			t.Errorf("message of %d bytes", size)
		}
	}
	if count != n {
		t.Errorf("%d caches got invalidations", count)
	}
}

// TestForwardIsBounded checks that messages with forwarded commands and log entries stay within the
// transport's limit, whichever part of them is large.
func TestForwardIsBounded(t *testing.T) {
	const n, batch, large = 60, 1 << 20, 1400 << 10
	big := strings.Repeat("k", large)
	commands := []fsm.Command{
		&fsm.DeleteRange{Key: big},
		&fsm.Txn{
			Compare: []fsm.Compare{{Key: "k", Target: fsm.TargetValue, Value: []byte(big)}},
			Then:    []fsm.Op{{Delete: &fsm.DeleteRange{Key: "k"}}},
		},
		&fsm.Txn{
			Then: []fsm.Op{{Draw: true}},
			Else: []fsm.Op{{Range: &fsm.Range{Key: "a", End: big}}},
		},
	}
	m := &local{cfg: Config{ID: 2, MaxBatch: batch}, machine: fsm.New(fsm.Config{})}
	f := &forwarder{m: m}
	for i := range n {
		f.queue = append(f.queue, &Proposal{Command: commands[i%len(commands)]})
	}
	check := func(msg *Message) {
		t.Helper()
		size := len(msg.AppendTo(nil))
		if size > batch+2*large || size > msg.Size() || msg.Size() > size+fixedSize {
			t.Errorf("message of %d bytes, Size returns %d", size, msg.Size())
		}
	}
	for messages := 0; len(f.queue) > 0; messages++ {
		msg := &Forward{}
		f.fill(msg)
		check(&Message{Version: 1, Forward: msg})
		f.received = f.next
		if messages == n {
			t.Fatal("the queue does not shrink")
		}
	}
	f.received = 0
	f.resend()
	check(m.out.Send[0])

	q := queue{machine: m.machine, maxBatch: batch}

	for i := range uint64(n) { // all arrive at the leader, one by one
		q.waiting = append(q.waiting, &Proposal{
			Command: commands[i%3], origin: fsm.Origin{Member: 3, Seq: i},
		})
	}
	for len(q.waiting) > 0 {
		data, of := q.next()
		if len(data) > batch+2*large {
			t.Errorf("entry of %d bytes", len(data))
		}
		if groups, err := fsm.DecodeEntry(data); err != nil || len(groups[0].Commands) != len(of) {
			t.Fatalf("%d commands: %v", len(of), err)
		}
		q.remove(len(of))
	}
}

// TestTooLarge checks that leaders and followers reject a command too large for any message.
// Commands before and after it proceed.
func TestTooLarge(t *testing.T) {
	c := newCluster(t, 1, 2, 3)
	c.check(c.members[1].r.Campaign())
	c.run()
	large := make([]byte, MaxCommand)
	for i, p := range []*peer{c.members[1], c.members[2]} {
		var list []*Proposal
		for k, value := range [][]byte{nil, large, nil, large, large, nil} {
			key := fmt.Sprint(i, k)
			list = append(list, &Proposal{
				Command: &fsm.Put{Key: key, Value: value}, Owner: "put " + key,
			})
			p.r.Propose(list[k])
		}
		c.run()
		for k, put := range list {
			if k == 1 || k == 3 || k == 4 {
				if !errors.Is(put.Err, ErrTooLarge) {
					t.Errorf("member %d, command %d: %v", i+1, k, put.Err)
				}
			} else if put.Err != nil || put.Result.Revision == 0 {
				t.Errorf("member %d, command %d: %+v, %v", i+1, k, put.Result, put.Err)
			}
		}
	}
}

// TestMessageIsBounded checks that a message with a large command contains nothing else. Any other
// message has at most MaxBeside bytes in addition to its batch of commands.
func TestMessageIsBounded(t *testing.T) {
	const batch, large = 1 << 20, 6 << 20
	here := &local{
		cfg: Config{ID: 2, MaxBatch: batch}, machine: fsm.New(fsm.Config{}),
		role: role{term: 1, leader: 1},
	}
	r := newRelay(here, 0)
	r.commands.term = 1
	for range maxForwarded {
		r.asks.renewals = append(r.asks.renewals, Renewal{ID: -1, Token: 1 << 63})
		r.asks.abandoned = append(r.asks.abandoned, -1)
		r.asks.reads = append(r.asks.reads, &Read{Leases: []lease.ID{-1}})
	}
	says := []keyrange.Range{{Key: strings.Repeat("k", large)}}
	for range 3 {
		r.asks.caches.acks = append(r.asks.caches.acks, AckCache{Dropped: says})
		r.asks.caches.opens = append(r.asks.caches.opens, OpenCache{Has: says})
	}
	for range 3 {
		r.asks.reads = append(r.asks.reads, &Read{Fill: &Fill{Ranges: says}})
		r.commands.queue = append(r.commands.queue, &Proposal{
			Command: &fsm.Put{Key: "k", Value: make([]byte, large)},
		})
	}
	for range 20 {
		r.send()
		r.commands.received, r.asks.current = r.commands.next, nil
	}
	commands, asks := 0, 0
	for _, m := range here.out.Send {
		size := len(m.AppendTo(nil))
		commands += len(m.Forward.Commands)
		asks += len(m.Forward.Renewals) + len(m.Forward.Acks) + len(m.Forward.Opens) +
			len(m.Forward.Fills)
		if size > batch+large+MaxBeside || size > m.Size() {
			t.Errorf("message of %d bytes, Size returns %d", size, m.Size())
		}
		if len(m.Forward.Commands) > 0 && size > batch+large+fixedSize {
			t.Errorf("a message of %d bytes has more than one command", size)
		}
	}
	if commands != 3 || asks != maxForwarded+9 {
		t.Errorf("%d commands, %d requests", commands, asks)
	}
}

// TestFollowerIsBounded checks that a follower without a leader queues a bounded number of commands
// and requests, and rejects the rest immediately. The queued requests time out, which frees their
// space.
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
		t.Errorf("refused although there is room again: %v", p.Err)
	}
}

// TestManyThroughFollower checks that a large number of commands and renewals sent through a
// follower are all answered, the commands in order, even if the first messages to the leader are
// lost.
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
	if f := &p.r.relay.commands; len(f.sent)+len(f.queue)+len(p.r.relay.asks.open) > 0 {
		t.Error("answered requests are still queued")
	}
}

// TestLostRefusal checks that if the refusal of a command is lost, the command has an unknown
// outcome and does not remain queued.
func TestLostRefusal(t *testing.T) {
	c := newCluster(t, 1, 2, 3)
	c.check(c.members[1].r.Campaign())
	c.run()
	c.members[1].r.ticks += 10 // no longer a new leader, so it refuses immediately
	p := c.members[2]
	c.cut[link2{1, 2}] = true
	c.propose(p, &fsm.AddMember{Member: fsm.Member{ID: 4, PeerURLs: []string{url(4)}}}, "add")
	c.run()
	delete(c.cut, link2{1, 2})
	c.pass(8000)
	if got := c.asks["2: add"]; got != ErrLeaderChanged.Error() {
		t.Errorf("answered %q", got)
	}
	if n := len(p.r.relay.commands.sent); n != 0 {
		t.Errorf("%d commands without a waiter are still queued", n)
	}
	if n := len(c.members[1].r.machine.View().Members); n != 3 {
		t.Errorf("%d members", n)
	}
}
