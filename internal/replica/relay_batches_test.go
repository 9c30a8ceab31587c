package replica

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

const notFound = "lease: not found"

// relaying returns a cluster that member 1 leads, with leases 1 to n, and counts what is
// relayed to leaders.
func relaying(t *testing.T, n lease.ID) (c *cluster, sent *relayed) {
	t.Helper()
	c, sent = caching(t), &relayed{}
	for id := range n {
		c.propose(c.members[1],
			&fsm.Grant{Terms: lease.Terms{ID: id + 1, TTL: 60_000}}, "grant", fmt.Sprint(id+1))
	}
	c.run()
	c.lose = func(m *Message) bool { return sent.see(m) }
	return c, sent
}

// relayed is what was sent, and which of it is lost.
type relayed struct {
	relayCount
	lose func(*Message) bool
}

// relayCount counts batches, single renewals, and answers to batches.
type relayCount struct{ batches, singles, answers int }

func (s *relayed) see(m *Message) bool {
	if f := m.Forward; f != nil {
		s.batches += len(f.Batches)
		s.singles += len(f.Renewals)
	}
	if m.Reply != nil {
		s.answers += len(m.Reply.Batches)
	}
	return s.lose != nil && s.lose(m)
}

func answersAll(m *Message) bool { return m.Reply != nil && len(m.Reply.Batches) > 0 }

func (c *cluster) wantAll(names []string, want ...string) {
	c.t.Helper()
	for i, name := range names {
		if got := c.asks[name]; got != want[i] {
			c.t.Errorf("%s: %q, want %q", name, got, want[i])
		}
	}
}

// settled fails if a member keeps anything of renewals that were answered.
func (c *cluster) settled(p *peer) {
	c.t.Helper()
	a := &p.r.relay.asks
	if len(a.open)+len(a.renewals)+len(a.batches.singles)+a.batches.leases > 0 ||
		!a.batches.empty() {
		c.t.Errorf("member %d keeps %+v", p.id, a)
	}
}

func repeat(text string, n int) []string { return slices.Repeat([]string{text}, n) }

// T15: a lease that is gone, one whose cache owes an acknowledgement (C1), one that has to be
// cleared of its checkpoint (rule 6) and one of another incarnation (T28) each go their own way,
// and delay no other of their batch; and each is answered once, however often messages arrive.
func TestRelayAllMixed(t *testing.T) {
	for _, twice := range []bool{false, true} {
		t.Run(fmt.Sprint("twice ", twice), func(t *testing.T) {
			c, sent := relaying(t, 3)
			c.twice[link2{2, 1}], c.twice[link2{1, 2}] = twice, twice
			silent := c.command(c.members[2], &fsm.Grant{Terms: lease.Terms{ID: 5, TTL: 6000}})
			c.want("grant", silent, "revision")
			c.pass(3500)
			if info, _ := c.members[1].r.lessor.Lookup(5); info.Remaining == 0 {
				t.Fatal("a silent lease has no checkpoint")
			}
			k := c.hold(c.members[2], 4, 5000)
			k.mustFill("c1")
			p := c.members[2]
			w := c.put(c.members[3], "c1", 0)
			p.r.Advance(c.now)
			b := &Renewals{
				IDs: []lease.ID{1, 99, 4, 2, 3, 5}, TTLs: make([]lease.TTL, 6),
				Tokens: []lease.Token{0, 0, k.token, 1 << 40, 0, 0},
			}
			names := make([]string, 6)
			for i, id := range b.IDs {
				names[i] = c.ask(p, "renew all", fmt.Sprint(id))
			}
			b.Owner = names
			p.r.RenewAll(b)
			c.run()
			c.wantAll(names, "ttl 60000", notFound, "", notFound, "ttl 60000", "ttl 6000")
			if b.Kept != 2 || sent.batches != 1 || sent.singles != 0 || sent.answers == 0 {
				t.Errorf("%d kept together, sent %+v", b.Kept, sent.relayCount)
			}
			c.want("the write", w, "")
			c.pass(1500) // in which it is asked for again
			if sent.singles == 0 || c.asks[names[2]] != "" {
				t.Errorf("%q, sent %+v", c.asks[names[2]], sent.relayCount)
			}
			k.ack("c1")
			c.want("the write", w, "revision")
			c.wantAll(names, "ttl 60000", notFound, "ttl 5000", notFound, "ttl 60000", "ttl 6000")
			c.settled(p)
		})
	}
}

// A batch of which nothing can be promised at once is answered one by one.
func TestRelayAllOfNone(t *testing.T) {
	c, sent := relaying(t, 1)
	names := c.renewAll(c.members[2], 77, 78, 79)
	c.run()
	c.wantAll(names, repeat(notFound, 3)...)
	if sent.relayCount != (relayCount{batches: 1}) {
		t.Errorf("sent %+v", sent.relayCount)
	}
	c.settled(c.members[2])
}

// What the leader says of a batch counts although its leases were asked for again meanwhile,
// and then what it says to that counts no more.
func TestRelayAllLateAnswer(t *testing.T) {
	c, sent := relaying(t, 3)
	p := c.members[2]
	var late *Message
	sent.lose = func(m *Message) bool {
		switch {
		case m.Reply != nil && len(m.Reply.Batches) > 0:
			late = m
		case m.Reply == nil || len(m.Reply.Renewed) == 0:
			return false
		}
		return true
	}
	names := c.renewAll(p, 1, 2, 3)
	c.run()
	c.pass(1200)
	if sent.singles != 3 || len(p.r.relay.asks.open) != 3 || late == nil {
		t.Fatalf("%d open, sent %+v", len(p.r.relay.asks.open), sent.relayCount)
	}
	late.Reply.Batches[0].TTLs[1] = 0 // as if this one had to wait for its outcome
	c.arrive(late)
	c.run()
	c.wantAll(names, "ttl 60000", "", "ttl 60000")
	sent.lose = nil
	c.pass(1200)
	c.wantAll(names, repeat("ttl 60000", 3)...)
	c.settled(p)
}

// Another member leads while a batch is at the leader. The next leader is asked for the batch
// as one, or for what was not answered, if something was; if that is the member itself, it
// renews them.
func TestRelayAllLeaderChanges(t *testing.T) {
	for _, tt := range []struct {
		to     uint64
		partly bool
		want   relayCount // with what was lost
	}{
		{3, false, relayCount{batches: 2, answers: 2}},
		{3, true, relayCount{batches: 1, singles: 3, answers: 1}},
		{2, false, relayCount{batches: 1, answers: 1}},
		{2, true, relayCount{batches: 1, answers: 1}},
	} {
		t.Run(fmt.Sprint("to ", tt.to, ", partly ", tt.partly), func(t *testing.T) {
			c, sent := relaying(t, 3)
			p := c.members[2]
			sent.lose = func(m *Message) bool {
				if !answersAll(m) || m.From != 1 {
					return false
				}
				// What is not found is told by itself.
				c.arrive(&Message{Version: 1, From: 1, To: 2, Reply: &Reply{
					Term: m.Reply.Term, Renewed: m.Reply.Renewed,
				}})
				return true
			}
			ids, want := []lease.ID{1, 2, 3}, repeat("ttl 60000", 3)
			if tt.partly {
				ids, want = append(ids, 99), append(want, notFound)
			}
			names := c.renewAll(p, ids...)
			c.run()
			c.wantAll(names, append(repeat("", 3), want[3:]...)...)
			c.succeed(tt.to)
			c.pass(100)
			c.wantAll(names, want...)
			if got := sent.relayCount; got != tt.want {
				t.Errorf("sent %+v, want %+v", got, tt.want)
			}
			c.settled(p)
		})
	}
}

// Rule 4: no answer leaves for a batch of another member before its confirm round is done, and
// a leader that is lost forgets it: the member asks the next one.
func TestRelayAllAtLostLeader(t *testing.T) {
	c, sent := relaying(t, 3)
	c.lose = func(m *Message) bool {
		return sent.see(m) || m.To == 1 && m.Forward == nil // nobody confirms anything
	}
	old := c.members[1].r
	before := old.lead.rounds.Last()
	names := c.renewAll(c.members[2], 1, 2, 3)
	c.run()
	if n := old.lead.rounds.Last() - before; n != 1 || sent.answers != 0 {
		t.Fatalf("%d rounds, %d answers", n, sent.answers)
	}
	for _, id := range []uint64{2, 3} {
		c.cut[link2{1, id}], c.cut[link2{id, 1}] = true, true
	}
	c.lose = nil
	c.pass(2500) // in which it gives up, and the others take it for dead
	if old.leading || !old.relay.asks.batches.empty() || len(old.relay.asks.renewals) > 0 {
		t.Errorf("leads %v and keeps what it was asked: %+v", old.leading, old.relay.asks)
	}
	c.wantAll(names, repeat("ttl 60000", 3)...)
	c.settled(c.members[2])
}

// A batch that comes before the leader has applied anything of its term is promised as one
// after that, or by the next leader.
func TestRenewAllEarly(t *testing.T) {
	m := lead(t)
	m.grant(1, 5000)
	m.grant(2, 5000)
	m.r.lead.demote() // as after an election
	b := together(1, 2)
	m.r.RenewAll(b)
	m.take()
	m.wantOutcomes(b, "", "")
	m.r.lead.promote()
	m.settle()
	m.wantOutcomes(b, "together 5000", "together 5000")

	other := together(1, 2)
	remote := together(1, 2)
	remote.from, remote.first = 3, 100
	m.r.lead.demote()
	m.r.RenewAll(other)
	m.r.RenewAll(remote)
	m.r.resign()
	if w := m.r.relay.asks.batches.waiting; len(w) != 1 || w[0] != other || m.r.lead != nil {
		t.Errorf("handed on: %+v", w)
	}
}

// What waits too long is refused, lease by lease, wherever it stands.
func TestRelayAllExpires(t *testing.T) {
	m := start(t, 2)
	for range 3 {
		m.r.Tick()
	}
	waiting, open, partly := together(1, 2), together(3, 4), together(5, 6)
	for i, b := range []*Renewals{open, partly, waiting} {
		b.Owner = i
	}
	m.r.RenewAll(open)
	m.r.RenewAll(partly)
	a := &m.r.relay.asks
	var f Forward
	a.fill(&f, m.r.ticks)
	if len(f.Batches) != 2 || f.Batches[1].First != f.Batches[0].First+2 || f.Round == 0 {
		t.Fatalf("asked for %+v", f)
	}
	gone := Renewed{Seq: f.Batches[1].First, Code: codeOf(lease.ErrNotFound)}
	a.renewed(&Reply{Renewed: []Renewed{gone, gone, {Seq: 1 << 60}, {}}})
	m.r.RenewAll(waiting)
	for range 10 * patienceAsks {
		m.r.Tick()
	}
	m.take()
	none := ErrNoLeader.Error()
	m.wantOutcomes(partly, notFound, none)
	m.wantOutcomes(waiting, none, none)
	m.wantOutcomes(open, none, none)
	if !a.batches.empty() || a.batches.leases != 0 || len(a.open) != 0 {
		t.Errorf("kept: %+v", a)
	}
}

// No number from the wire does harm, whatever a leader answers: every lease has one outcome.
func TestRelayAllNumbers(t *testing.T) {
	m := start(t, 2)
	first, second := together(1, 2, 3), together(4, 5)
	first.Owner, second.Owner = "first", "second"
	m.r.RenewAll(first)
	m.r.RenewAll(second)
	a := &m.r.relay.asks
	var f Forward
	a.fill(&f, m.r.ticks)
	n := f.Batches[0].First
	a.renewed(&Reply{
		Renewed: []Renewed{{Seq: n - 1, TTL: 5}, {Seq: n + 5, TTL: 5}, {Seq: n + 4, TTL: 9}},
		Batches: []RenewedAll{
			{First: n, TTLs: []lease.TTL{1}}, // not as many as were asked for
			{First: n + 1, TTLs: []lease.TTL{1, 2}},
			{First: n - 1, TTLs: []lease.TTL{1, 2}},
			{First: n, TTLs: []lease.TTL{7, 0, 8}},
			{First: n, TTLs: []lease.TTL{9, 9, 9}},
			{First: n + 3, TTLs: []lease.TTL{0, 6}},
		},
	})
	m.take()
	m.wantOutcomes(first, "together 7", "", "together 8")
	m.wantOutcomes(second, "", "9")
	a.renewed(&Reply{Batches: []RenewedAll{
		{First: n - 1, TTLs: []lease.TTL{3, 3, 4}}, {First: n + 3, TTLs: []lease.TTL{5, 5}},
	}})
	m.take()
	m.wantOutcomes(first, "together 7", "4", "together 8")
	m.wantOutcomes(second, "5", "9")
	if !a.batches.empty() || len(a.open) != 0 {
		t.Errorf("kept: %+v", a)
	}
}

// Goal: whatever is lost, repeated and late, and whichever member leads, each renewal of a batch
// has one outcome. Method: members and leases at random, with a third of all messages about them
// lost.
func TestRelayAllAnyhow(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			c, sent := relaying(t, 8)
			sent.lose = func(m *Message) bool { return m.Raft == nil && rng.IntN(3) == 0 }
			var asked [][]string
			for range 60 {
				p := c.members[1+rng.Uint64N(3)]
				switch rng.IntN(8) {
				case 0:
					_ = p.r.Transfer(1 + rng.Uint64N(3))
				case 1:
					on := link2{p.id, 1 + rng.Uint64N(3)}
					c.twice[on] = !c.twice[on]
				case 2:
					c.propose(p, &fsm.Revoke{ID: lease.ID(1 + rng.IntN(8))}, "revoke")
				case 3:
					c.propose(p, &fsm.Grant{
						Terms: lease.Terms{ID: lease.ID(1 + rng.IntN(8)), TTL: 700},
					}, "grant")
				default:
					ids := make([]lease.ID, 1+rng.IntN(6))
					for i := range ids {
						ids[i] = lease.ID(1 + rng.IntN(9))
					}
					asked = append(asked, c.renewAll(p, ids...))
				}
				if rng.IntN(3) == 0 {
					c.pass(lease.Instant(1 + rng.IntN(400)))
				}
			}
			sent.lose = nil
			c.pass(6000)
			for _, name := range slices.Concat(asked...) {
				if c.asks[name] == "" {
					t.Errorf("%s has no outcome", name)
				}
			}
			for _, id := range c.ids() {
				c.settled(c.members[id])
			}
		})
	}
}

// TestRelayAllAgain: a batch without an answer is asked for lease by lease when it is time for
// that, and not before.
func TestRelayAllAgain(t *testing.T) {
	var c batchRelay
	c.add(together(1, 2))
	c.fill(&Forward{}, 0, 5)
	if c.again(14, 10); len(c.close()) != 0 || c.empty() {
		t.Error("asked again too early")
	}
	if c.again(15, 10); len(c.close()) != 2 || !c.empty() {
		t.Error("not asked again")
	}
}
