package holder

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"weak"

	"leasehold.dev/lease"
)

// agent is an Agent whose holders are named by strings and whose requests are numbers.
type agent struct {
	Agent[string, int]
	t *testing.T
}

func newAgent(t *testing.T) *agent { return &agent{t: t} }

// joined makes the given leases of holder "h" join group 1 at the instant now.
func (a *agent) joined(now lease.Instant, rounds uint64, ids ...lease.ID) {
	for _, id := range ids {
		a.Joined(now, Join[string]{
			By: "h", ID: id, Token: 9, Group: 1, TTL: 1000, Rounds: rounds,
		})
	}
}

// next returns the next round, and fails the test if there is none.
func (a *agent) next(now lease.Instant) Round {
	a.t.Helper()
	r, ok := a.Next(now)
	if !ok {
		a.t.Fatal("there is no round")
	}
	return r
}

// answer answers a round for group 1, and returns the answered requests.
func (a *agent) answer(r Round, ttl lease.TTL, at lease.Instant, left ...lease.ID) (out string) {
	for _, x := range a.Answered(r.Number, []RenewedGroup{{ID: 1, TTL: ttl, At: at, Left: left}}) {
		out += fmt.Sprintf("%d:%d ", x.Of, x.TTL)
	}
	return out
}

// TestAgentAnswersByRounds checks that a request is answered by a round sent after the request
// arrived, and that only one round is in flight at a time. Leases that the lessor reports as having
// left are not renewed.
func TestAgentAnswersByRounds(t *testing.T) {
	a := newAgent(t)
	if a.joined(0, 0, 1, 2, 3); a.Keeps("h", 1, 9) != 1000 || a.Keeps("h", 1, 0) != 1000 ||
		a.Keeps("h", 1, 8) != 0 || a.Keeps("g", 1, 9) != 0 || a.Keeps("h", 4, 9) != 0 {
		t.Error("it keeps a lease that did not join")
	}
	a.Renew(100, 1, 10)
	r := a.next(100)
	a.Renew(101, 1, 11)
	a.Renew(101, 2, 12)
	a.Renew(101, 3, 13)
	if _, ok := a.Next(101); ok || !a.Pending() || a.Waiting() != 4 {
		t.Error("two rounds are under way")
	}
	if got := a.answer(r, 1000, 5); got != "10:1000 " {
		t.Errorf("the first round answers %q", got)
	}
	if got := a.answer(r, 1000, 5); got != "" {
		t.Errorf("the first round answers %q once more", got)
	}
	r = a.next(102)
	if got := a.answer(r, 1000, 6, 2); got != "11:1000 12:0 13:1000 " || a.Keeps("h", 2, 9) != 0 {
		t.Errorf("the second round answers %q", got)
	}
	a.Renew(103, 1, 14)
	r = a.next(103)
	a.Renew(104, 3, 15)
	if got := a.answer(r, 0, 0); got != "14:0 15:0 " || a.Keeps("h", 1, 9)+a.Keeps("h", 3, 9) != 0 {
		t.Errorf("a round that finds the group over answers %q", got)
	}
	a.joined(105, 3, 1)
	a.Renew(105, 1, 16)
	r = a.next(105)
	a.Joined(106, Join[string]{By: "h", ID: 1, Group: 2, TTL: 500, Rounds: 3})
	if got := a.answer(r, 1000, 7, 1); got != "16:0 " || a.Keeps("h", 1, 0) != 500 {
		t.Errorf("the round of a group that a lease has left for another answers %q", got)
	}
	if a.Waiting() != 0 || a.Waits() {
		t.Error("something waits")
	}
}

// TestAgentLeaves checks that a lease leaves when its holder is gone, or has been silent for two
// fifths of the TTL. Its leave takes effect as of the last round that answered the holder. Requests
// that arrived during that round do not count as answered.
func TestAgentLeaves(t *testing.T) {
	a := newAgent(t)
	a.joined(0, 0, 1, 2, 3)
	a.Renew(100, 1, 10)
	a.Renew(100, 2, 11)
	a.answer(a.next(100), 1000, 7100)
	a.Renew(300, 1, 12)
	a.answer(a.next(300), 1000, 7300)
	if at, ok := a.SilentAt(); !ok || at != 400 {
		t.Errorf("the first lease is silent at %d, %v", at, ok)
	}
	want := []Leaving{{3, 1, 0}}
	if r := a.next(400); len(r.Renew) != 0 || !slices.Equal(r.Leave, want) {
		t.Errorf("at 400 %+v", r)
	} else {
		a.answer(r, 1000, 1)
	}
	a.joined(400, 3, 1, 2)
	a.Renew(450, 1, 13)
	r := a.next(450)
	if a.Leave("g", 1) || !a.Leave("h", 1) || a.Leave("h", 1) {
		t.Error("a lease leaves for another holder, or twice")
	}
	if got := a.answer(r, 1000, 7450); got != "13:0 " {
		t.Errorf("the round answers %q", got)
	}
	want = []Leaving{{1, 1, 7300}}
	if r := a.next(500); !slices.Equal(r.Leave, want) {
		t.Errorf("at 500 %+v, want %v", r, want)
	} else {
		a.answer(r, 1000, 7500)
	}
	want = []Leaving{{2, 1, 7100}} // lease 2 was renewed individually at 400
	if r := a.next(800); !slices.Equal(r.Leave, want) {
		t.Errorf("at 800 %+v, want %v", r, want)
	}
}

// TestAgentJoins checks that a join does not count if an earlier answer may have reported that the
// lease has left, or if a round in flight removes the lease from its group. The lease then leaves,
// because the lessor may still have it in the group although no holder relies on the group. A join
// cancels a leave that has not been sent.
func TestAgentJoins(t *testing.T) {
	a := newAgent(t)
	a.joined(0, 0, 1, 2)
	a.Renew(1, 1, 10)
	a.answer(a.next(1), 1000, 1)
	a.joined(2, 0, 3) // the answer was sent after the join
	if a.Keeps("h", 3, 9) != 0 {
		t.Error("a join counts that an answer may have revoked")
	}
	a.Leave("h", 1)
	a.joined(2, 1, 1)
	if r := a.next(3); a.Keeps("h", 1, 9) == 0 || !slices.Equal(r.Leave, []Leaving{{3, 1, 0}}) {
		t.Errorf("after a join the round is %+v", r)
	} else {
		a.answer(r, 1000, 1)
	}
	a.joined(4, 2, 1)
	a.Leave("h", 1)
	r := a.next(4)
	a.joined(5, 2, 1)
	if a.Keeps("h", 1, 9) != 0 {
		t.Error("a join counts while a round takes the lease out")
	}
	a.joined(5, 3, 1)
	if a.Keeps("h", 1, 9) == 0 {
		t.Error("a join does not count that came after the leave")
	}
	a.answer(r, 1000, 1)
}

// TestAgentManyLeave checks that the size of a round is bounded.
func TestAgentManyLeave(t *testing.T) {
	a := newAgent(t)
	for id := range lease.ID(MaxLeave + 1) {
		a.joined(0, 0, id+1)
		a.Leave("h", id+1)
	}
	for _, want := range []int{MaxLeave, 1} {
		r := a.next(0)
		if len(r.Leave) != want {
			t.Errorf("%d leases leave, not %d", len(r.Leave), want)
		}
		a.answer(r, 1000, 1)
	}
}

// TestAgentLeavesInOrder checks that leases leave in the same order whenever the same events are
// repeated.
func TestAgentLeavesInOrder(t *testing.T) {
	a := newAgent(t)
	for id := lease.ID(20); id > 0; id-- {
		a.Joined(0, Join[string]{By: "h", ID: id, Group: lease.GroupID(id), TTL: 1000})
	}
	r := a.next(400)
	if !slices.IsSortedFunc(r.Leave, func(x, y Leaving) int { return cmp.Compare(x.Group, y.Group) }) {
		t.Errorf("they leave in the order %+v", r.Leave)
	}
}

// TestAgentForgetsRequests checks that an idle agent keeps no answered request in memory.
func TestAgentForgetsRequests(t *testing.T) {
	var a Agent[string, *[16]byte]
	a.Joined(0, Join[string]{By: "h", ID: 1, Group: 1, TTL: 1000})
	request := new([16]byte)
	gone := weak.Make(request)
	a.Renew(1, 1, request)
	r, _ := a.Next(1)
	request = nil
	if out := a.Answered(r.Number, nil); len(out) != 1 {
		t.Fatalf("%d answers", len(out))
	}
	runtime.GC()
	if gone.Value() != nil {
		t.Error("the request is in memory")
	}
	runtime.KeepAlive(&a)
}

// promises simulates a lessor and an agent that keeps holders' leases alive. The network between
// them delays, reorders, duplicates and loses messages.
type promises struct {
	*testing.T
	rand   *rand.Rand
	now    lease.Instant
	lessor *lease.Lessor
	agent  Agent[int, sent]
	resets int
	late   lease.Instant // when the round in flight times out
	taken  uint64        // the last round that the lessor received
	group  lease.GroupID
	mail   []delivery
	// until holds the instant until which each holder considers its lease valid.
	until map[lease.ID]lease.Instant
	// active is the highest ID of a lease with a live holder.
	active lease.ID
	kept   int // number of requests answered by rounds
	ended  map[lease.ID]int
}

// sent is a holder's request.
type sent struct {
	id lease.ID
	at lease.Instant
}

type delivery struct {
	at lease.Instant
	do func()
}

const promisedTTL = 1000

func (p *promises) send(do func()) {
	for range 1 + p.rand.IntN(10)/9 { // sometimes twice
		if p.rand.IntN(100) > 0 {
			p.mail = append(p.mail, delivery{p.now + lease.Instant(p.rand.IntN(150)), do})
		}
	}
}

// holds records that the answered request r makes its lease valid for a TTL.
func (p *promises) holds(r sent) {
	p.until[r.id] = max(p.until[r.id], r.at+promisedTTL)
}

// renew renews a lease through the agent on behalf of its holder.
func (p *promises) renew(r sent) {
	if p.agent.Keeps(0, r.id, 0) != 0 {
		p.agent.Renew(p.now, r.id, r)
		return
	}
	p.alone(r)
}

// alone renews a lease individually and then lets it join.
func (p *promises) alone(r sent) {
	p.send(func() {
		n, err := p.lessor.Renew(r.id, 0)
		if err != nil || n.Clear {
			return
		}
		if !p.lessor.HasGroup(p.group) {
			p.group++
			p.lessor.OpenGroup(p.group, promisedTTL)
		}
		j := Join[int]{ID: r.id, Group: p.group, TTL: promisedTTL, Rounds: p.taken}
		in := p.lessor.Join(p.group, r.id, 0)
		p.send(func() {
			p.holds(r)
			if in {
				p.agent.Joined(p.now, j)
			}
		})
	})
}

// round sends the next round if there is one. It abandons a round that has not been answered in
// time.
func (p *promises) round() {
	if p.agent.Pending() && p.now > p.late {
		p.resets++
		for _, x := range p.agent.Reset() {
			p.alone(x.Of)
		}
	}
	r, ok := p.agent.Next(p.now)
	if !ok {
		return
	}
	p.late = p.now + lease.Instant(100+p.rand.IntN(300))
	p.send(func() {
		if r.Number <= p.taken {
			return
		}
		p.taken = r.Number
		if r.Fresh {
			p.lessor.EndGroup(p.group, false)
		}
		for _, l := range r.Leave {
			p.lessor.Leave(l.Group, l.ID, l.AsOf)
		}
		var out []RenewedGroup
		for _, g := range r.Renew {
			ttl, ok := p.lessor.RenewGroup(g)
			x := RenewedGroup{ID: g, TTL: ttl, At: p.now}
			if ok {
				x.Left, _ = p.lessor.Left(g)
			}
			out = append(out, x)
		}
		p.send(func() {
			for _, x := range p.agent.Answered(r.Number, out) {
				if x.TTL > 0 {
					p.kept++
					p.holds(x.Of)
				} else {
					p.alone(x.Of)
				}
			}
		})
	})
}

// step advances time by a millisecond.
func (p *promises) step() {
	p.now++
	p.lessor.Advance(p.now)
	slices.SortStableFunc(p.mail, func(a, b delivery) int { return cmp.Compare(a.at, b.at) })
	for len(p.mail) > 0 && p.mail[0].at <= p.now {
		do := p.mail[0].do
		p.mail = p.mail[1:]
		do()
	}
	for id := range lease.ID(6) {
		if id++; id > p.active {
			break
		}
		switch p.rand.IntN(1200) {
		case 0:
			p.agent.Leave(0, id)
		case 1:
			// This could be a hand-over: the holder has agreed to it and no longer believes that it
			// holds the lease.
			delete(p.until, id)
			if l, ok := p.lessor.Lookup(id); ok {
				_, _ = p.lessor.ChangeTTL(id, l.Token, l.TTL)
			}
		case 2, 3, 4, 5:
			p.renew(sent{id, p.now})
		}
	}
	if p.rand.IntN(5) == 0 {
		p.round()
	}
	for _, d := range p.lessor.Due(100) {
		if p.until[d.ID] > p.now {
			p.Fatalf("at %d lease %d ends, and its holder believes until %d", p.now, d.ID, p.until[d.ID])
		}
		p.lessor.Expire(d)
		if _, err := p.lessor.Grant(lease.Terms{ID: d.ID, TTL: promisedTTL}); err != nil {
			p.Fatal(err)
		}
		delete(p.until, d.ID)
		p.ended[d.ID]++
	}
}

// TestAgentPromises checks that no holder renewing through an agent considers its lease valid for
// longer than the lessor does, no matter what the network does to messages between agent and
// lessor. Leases whose holders are gone expire.
func TestAgentPromises(t *testing.T) {
	kept, resets := 0, 0
	for seed := range uint64(60) {
		p := &promises{
			T: t, rand: rand.New(rand.NewPCG(seed, 1)), lessor: lease.New(lease.Config{}),
			until: make(map[lease.ID]lease.Instant), active: 6, ended: make(map[lease.ID]int),
		}
		p.lessor.Promote(0)
		for id := range lease.ID(6) {
			if _, err := p.lessor.Grant(lease.Terms{ID: id + 1, TTL: promisedTTL}); err != nil {
				t.Fatal(err)
			}
		}
		for range 10_000 {
			p.step()
		}
		p.active = 3
		for range 2 * promisedTTL {
			p.step()
		}
		clear(p.ended)
		for range 5 * promisedTTL {
			p.step()
		}
		for id := range lease.ID(3) {
			if n := p.ended[id+4]; n < 3 {
				t.Errorf("seed %d: a lease whose holder is gone ended %d times in five TTLs", seed, n)
			}
		}
		kept, resets = kept+p.kept, resets+p.resets
	}
	if kept == 0 || resets == 0 {
		t.Errorf("rounds have answered %d requests, and the agent was reset %d times", kept, resets)
	}
}

// TestAgentLeavesAfterRejoin covers a lease that leaves its group at the lessor and rejoins before
// a round's outcome reports that it has left. The lessor may still have it in the group, so the
// agent makes it leave.
func TestAgentLeavesAfterRejoin(t *testing.T) {
	a := newAgent(t)
	a.joined(0, 0, 1, 2)
	a.Renew(100, 2, 10)
	r := a.next(100)
	a.joined(100, 0, 1) // joins again, perhaps after it has left
	a.answer(r, 1000, 5, 1)
	if r = a.next(101); len(r.Leave) != 1 || r.Leave[0] != (Leaving{ID: 1, Group: 1}) {
		t.Errorf("the next round is %+v, want lease 1 to leave", r)
	}
}

// TestAgentNewHolder checks that a waiting request is not answered by a renewal if the lease now
// belongs to another holder, or to the same holder with another token.
func TestAgentNewHolder(t *testing.T) {
	for name, j := range map[string]Join[string]{
		"another holder": {By: "g", ID: 1, Token: 9, Group: 1, TTL: 1000, Rounds: 1},
		"another token":  {By: "h", ID: 1, Token: 10, Group: 1, TTL: 1000, Rounds: 1},
	} {
		a := newAgent(t)
		a.joined(0, 0, 1, 2)
		a.Renew(100, 2, 10)
		r := a.next(100)
		a.Renew(101, 1, 11) // to be answered by the next round
		a.answer(r, 1000, 5)
		a.Joined(102, j)
		a.Renew(103, 1, 12)
		if got := a.answer(a.next(103), 1000, 6); got != "11:0 12:1000 " {
			t.Errorf("%s: the round answers %q", name, got)
		}
	}
}

// TestAgentTwoGroups checks that a lease that the lessor may have in two groups leaves both.
func TestAgentTwoGroups(t *testing.T) {
	a := newAgent(t)
	a.Joined(0, Join[string]{By: "h", ID: 1, Token: 9, Group: 7, TTL: 2000})
	a.Leave("h", 1)
	a.Unwanted(Join[string]{By: "g", ID: 1, Group: 1})
	want := []Leaving{{ID: 1, Group: 7}, {ID: 1, Group: 1}}
	if r := a.next(1); !slices.Equal(r.Leave, want) {
		t.Errorf("%v leave, want %v", r.Leave, want)
	}
}

// TestAgentLateJoin covers a lease that joins two groups, where the answer to one join arrives
// late, after the answer to the other. The lease stays in its current group, and leaves that group
// when its holder falls silent.
func TestAgentLateJoin(t *testing.T) {
	a := newAgent(t)
	a.joined(0, 0, 2)
	a.Renew(0, 2, 10)
	a.answer(a.next(0), 1000, 5)
	a.Joined(1, Join[string]{By: "h", ID: 1, Token: 9, Group: 7, TTL: 2000, Rounds: 1})
	a.joined(2, 0, 1)
	if a.Keeps("h", 1, 9) != 2000 {
		t.Error("lease 1 is not in its group")
	}
	a.answer(a.next(3), 0, 0) // lease 1 leaves group 1 in case the lessor has it there
	if !a.Leave("h", 1) || !slices.Equal(a.next(4).Leave, []Leaving{{ID: 1, Group: 7}}) {
		t.Error("lease 1 does not leave group 7")
	}
}
