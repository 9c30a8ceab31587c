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

// relaying returns a cluster led by member 1, with leases 1 to n. sent counts the renewals that
// followers forward.
func relaying(t testing.TB, n lease.ID, ttl lease.TTL) (c *cluster, sent *relayed) {
	t.Helper()
	c, sent = caching(t), &relayed{}
	for id := range n {
		c.propose(c.members[1],
			&fsm.Grant{Terms: lease.Terms{ID: id + 1, TTL: ttl}}, "grant", fmt.Sprint(id+1))
	}
	c.run()
	c.lose = func(m *Message) bool { return sent.see(m) }
	return c, sent
}

// relayed counts forwarded renewals of leases and groups, and leases leaving their groups. It can
// drop messages.
type relayed struct {
	leases, groups, left int
	lose                 func(*Message) bool
}

func (s *relayed) see(m *Message) bool {
	if f := m.Forward; f != nil {
		s.leases += len(f.Renewals)
		s.groups += len(f.Groups.Renew)
		s.left += len(f.Groups.Leave)
	}
	return s.lose != nil && s.lose(m)
}

func (s *relayed) want(t *testing.T, leases, groups, left int) {
	t.Helper()
	if s.leases != leases || s.groups != groups || s.left != left {
		t.Errorf("%d leases and %d groups renewed, %d leases left; want %d, %d and %d",
			s.leases, s.groups, s.left, leases, groups, left)
	}
	s.leases, s.groups, s.left = 0, 0, 0
}

// renewed renews leases at a member and fails the test unless each result is want.
func (c *cluster) renewed(p *peer, want string, ids ...lease.ID) {
	c.t.Helper()
	names := c.renewAll(p, ids...)
	c.run()
	for _, name := range names {
		if got := c.asks[name]; got != want {
			c.t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// expiry returns the instant from which the leader can end a lease.
func (c *cluster) expiry(id lease.ID) lease.Instant {
	c.t.Helper()
	for _, p := range c.members {
		if p.r.primary && !p.down {
			at, _ := p.r.lessor.Expiry(id)
			return at
		}
	}
	c.t.Fatal("no leader")
	return 0
}

// TestFollowerGroups checks that a follower renews a lease by ID once, and with its group from then
// on. The leader ends the lease as if each renewal had named it.
func TestFollowerGroups(t *testing.T) {
	c, sent := relaying(t, 3, 9000)
	p := c.members[2]
	c.renewed(p, "ttl 9000", 1, 2, 3)
	sent.want(t, 3, 0, 0)
	c.now += 1000
	c.renewed(p, "ttl 9000", 1, 3)
	sent.want(t, 0, 1, 0)
	renewed := c.now
	if at := c.expiry(3); at < renewed+9000 {
		t.Errorf("renewed at %d, may end at %d", renewed, at)
	}
	c.propose(c.members[3], &fsm.Revoke{ID: 1}, "revoke")
	c.run()
	c.renewed(p, notFound, 1)
	sent.want(t, 1, 1, 1) // it left its group and was renewed by ID
	c.renewed(c.members[3], "ttl 9000", 2)
	c.renewed(p, "ttl 9000", 2)
	sent.want(t, 2, 1, 1) // from one follower's group to the other follower's group, and back
	c.now += 1000
	p.r.Advance(c.now)
	p.r.Abandon([]lease.ID{3})
	c.renewed(p, "ttl 9000", 2)
	if at := c.expiry(3); at != renewed+9001 {
		t.Errorf("a lease last renewed at %d before it left may end at %d", renewed, at)
	}
	c.pass(3000)
	if info, _ := p.r.lessor.Lookup(3); info.Remaining == 0 {
		t.Error("the lease that left has no checkpoint")
	}
}

// TestFollowerSilence checks that a lease whose holder becomes silent leaves its group as of its
// last renewal, and ends when it would have ended without the group.
func TestFollowerSilence(t *testing.T) {
	c, sent := relaying(t, 2, 2000)
	p := c.members[2]
	c.renewed(p, "ttl 2000", 1, 2)
	began := c.now
	for range 30 {
		c.pass(70)
		c.renewed(p, "ttl 2000", 1)
		if _, ok := p.r.lessor.Lookup(2); !ok {
			break
		}
	}
	if c.now < began+2000 || c.now > began+2100 || sent.left != 1 || sent.leases != 2 {
		t.Errorf("renewed at %d, ended at %d; %+v", began, c.now, sent)
	}
}

// TestFollowerAbandonsJoining checks that if a client disconnects before the renewal of its lease
// is answered, the lease leaves the group that it is joining, unless another client has renewed it.
func TestFollowerAbandonsJoining(t *testing.T) {
	for name, tt := range map[string]struct {
		sent, again bool
		left        int
	}{
		"before the round is sent": {left: 1},
		"while it is in flight":    {sent: true, left: 1},
		"another client renews it": {sent: true, again: true, left: 0},
	} {
		c, sent := relaying(t, 2, 9000)
		p := c.members[2]
		c.held[link2{1, 2}] = nil
		if !tt.sent {
			c.renewAll(p, 2) // in the previous round
			c.run()
		}
		c.renewAll(p, 1)
		c.run()
		p.r.Abandon([]lease.ID{1})
		if tt.again {
			c.renewAll(p, 1)
		}
		held := c.held[link2{1, 2}]
		delete(c.held, link2{1, 2})
		for _, m := range held {
			c.arrive(m)
		}
		c.run()
		c.pass(2000)
		if sent.left != tt.left {
			t.Errorf("%s: %d leases left, want %d", name, sent.left, tt.left)
		}
		c.renewed(p, "ttl 9000", 2)
		c.renewed(p, "ttl 9000", 2)
		if n := len(p.r.relay.asks.gone); n > 0 {
			t.Errorf("%s: %d abandoned leases are remembered", name, n)
		}
	}
}

// TestFollowerAnswersByRounds checks that a request is answered by a confirmed round that was sent
// after the request arrived.
func TestFollowerAnswersByRounds(t *testing.T) {
	c, _ := relaying(t, 2, 5000)
	p := c.members[2]
	c.renewed(p, "ttl 5000", 1, 2)
	c.now += 500
	c.held[link2{1, 2}] = nil
	first := c.renewAll(p, 1)
	c.run()
	c.now += 500
	second := c.renewAll(p, 2)
	c.run()
	held := c.held[link2{1, 2}]
	c.held[link2{1, 2}] = nil
	for _, m := range held {
		c.arrive(m)
	}
	c.run()
	if c.asks[first[0]] != "ttl 5000" || c.asks[second[0]] != "" {
		t.Errorf("answered by an earlier round: %q, %q", c.asks[first[0]], c.asks[second[0]])
	}
	held = c.held[link2{1, 2}]
	delete(c.held, link2{1, 2})
	for _, m := range held {
		c.arrive(m)
	}
	c.run()
	if c.asks[second[0]] != "ttl 5000" || c.expiry(2) < c.now+5000 {
		t.Errorf("%q at %d, may end at %d", c.asks[second[0]], c.now, c.expiry(2))
	}
	c.cut[link2{2, 1}], c.cut[link2{3, 1}] = true, true // no confirm round can succeed
	c.held[link2{2, 1}] = nil
	third := c.renewAll(p, 1)
	c.run()
	for _, m := range c.held[link2{2, 1}] {
		c.arrive(m)
	}
	if c.run(); c.asks[third[0]] != "" {
		t.Errorf("without a confirm round: %q", c.asks[third[0]])
	}
}

// TestFollowerRoundsOnce checks that the leader processes each round once. A duplicate or late
// message cannot make a lease join or leave a group.
func TestFollowerRoundsOnce(t *testing.T) {
	c, sent := relaying(t, 2, 5000)
	p := c.members[2]
	var old []*Message
	sent.lose = func(m *Message) bool {
		if m.Forward != nil && m.Forward.Groups.Number != 0 {
			old = append(old, m)
		}
		return false
	}
	c.renewed(p, "ttl 5000", 1, 2)
	p.r.Abandon([]lease.ID{2})
	c.run()
	c.renewed(p, "ttl 5000", 2)
	if len(old) != 3 || len(old[1].Forward.Groups.Leave) != 1 {
		t.Fatalf("%d rounds", len(old))
	}
	lessor := c.members[1].r.lessor
	for _, m := range old {
		c.arrive(m)
	}
	c.run()
	if lessor.GroupOf(2) == 0 {
		t.Error("a duplicate message made a lease leave")
	}
	p.r.Abandon([]lease.ID{2})
	c.run()
	c.arrive(old[0])
	if c.run(); lessor.GroupOf(2) != 0 {
		t.Error("a duplicate message made a lease join")
	}
}

// TestFollowerRoundIsLost checks that if a round has no outcome, all groups end and each lease is
// renewed by ID. As a result, no lease stays in a group that the follower does not know.
func TestFollowerRoundIsLost(t *testing.T) {
	for _, answer := range []bool{false, true} {
		t.Run(fmt.Sprint("of the answer ", answer), func(t *testing.T) {
			c, sent := relaying(t, 3, 9000)
			p := c.members[2]
			c.renewed(p, "ttl 9000", 1)
			sent.want(t, 1, 0, 0)
			sent.lose = func(m *Message) bool {
				return answer && m.Reply != nil || !answer && m.Forward != nil
			}
			names := c.renewAll(p, 1, 2)
			c.run()
			sent.lose = nil
			names = append(names, c.renewAll(p, 1, 3)...)
			c.pass(1500)
			for _, name := range names {
				if c.asks[name] != "ttl 9000" {
					t.Errorf("%s: %q", name, c.asks[name])
				}
			}
			sent.want(t, 5, 1, 0)
			c.renewed(p, "ttl 9000", 1, 3)
			sent.want(t, 0, 1, 0)
			lessor := c.members[1].r.lessor
			if lessor.GroupOf(1) == 0 || lessor.GroupOf(2) != 0 && !p.keeps(2) {
				t.Error("a lease is in a group that the follower does not know of")
			}
		})
	}
}

func (p *peer) keeps(id lease.ID) bool {
	return p.r.relay.asks.agent.Keeps(struct{}{}, id, 0) > 0
}

// TestFollowerAndLeaders checks that a new leader has no groups. The leases join again, or their
// member renews them directly if it became the leader.
func TestFollowerAndLeaders(t *testing.T) {
	for _, to := range []uint64{3, 2} {
		t.Run(fmt.Sprint("to ", to), func(t *testing.T) {
			c, sent := relaying(t, 2, 5000)
			p := c.members[2]
			c.renewed(p, "ttl 5000", 1, 2)
			c.cut[link2{1, 2}] = true
			names := c.renewAll(p, 1)
			c.run()
			delete(c.cut, link2{1, 2})
			sent.want(t, 2, 1, 0)
			c.succeed(to)
			c.pass(100)
			if c.asks[names[0]] != "ttl 5000" {
				t.Errorf("%q", c.asks[names[0]])
			}
			c.renewed(p, "ttl 5000", 2)
			if to == 2 {
				sent.want(t, 0, 0, 0)
			} else {
				sent.want(t, 2, 0, 0)
				c.renewed(p, "ttl 5000", 1, 2)
				sent.want(t, 0, 1, 0)
			}
		})
	}
}

// TestFollowerAndAccess checks that a change to users or roles ends all groups at its revision. A
// renewal authorized before that does not join any group.
func TestFollowerAndAccess(t *testing.T) {
	c, sent := relaying(t, 1, 5000)
	p := c.members[2]
	c.renewed(p, "ttl 5000", 1)
	c.propose(c.members[3], &fsm.RoleAdd{Name: "r"}, "role")
	c.run()
	if g := c.members[1].r.lessor.GroupOf(1); g != 0 {
		t.Errorf("the lease is in group %d", g)
	}
	c.renewed(p, "ttl 5000", 1) // without users and roles
	sent.want(t, 2, 1, 0)
	c.renewed(p, "ttl 5000", 1)
	sent.want(t, 1, 0, 0)
	b := &Renewals{
		IDs: []lease.ID{1}, TTLs: make([]lease.TTL, 1), Owner: []string{"now"},
		GroupRenewals: GroupRenewals{Access: p.r.machine.Access()},
	}
	c.held[link2{2, 1}] = nil
	p.r.RenewAll(b)
	c.run()
	held := c.held[link2{2, 1}]
	delete(c.held, link2{2, 1})
	c.propose(c.members[3], &fsm.RoleAdd{Name: "s"}, "role")
	c.run()
	for _, m := range held {
		c.arrive(m)
	}
	c.run()
	if c.asks["now"] != "ttl 5000" || c.members[1].r.lessor.GroupOf(1) != 0 {
		t.Error("a renewal joined although it was authorized by other roles than the leader's")
	}
	b.Owner, b.Access = []string{"then"}, p.r.machine.Access()
	p.r.RenewAll(b)
	if c.run(); c.members[1].r.lessor.GroupOf(1) == 0 {
		t.Error("a renewal authorized by the leader's roles did not join")
	}
}

func TestFollowerRefuses(t *testing.T) {
	c, _ := relaying(t, 3, 60_000)
	p := c.members[2]
	c.renewed(p, "ttl 60000", 1, 2)
	c.cut[link2{2, 1}], c.cut[link2{2, 3}] = true, true
	c.cut[link2{1, 2}], c.cut[link2{3, 2}] = true, true
	names := c.renewAll(p, 1, 3)
	c.run()
	names = append(names, c.renewAll(p, 2, 3)...)
	c.pass(7000)
	for _, name := range names {
		if got := c.asks[name]; got != ErrNoLeader.Error() {
			t.Errorf("%s: %q", name, got)
		}
	}
	if a := &p.r.relay.asks; !a.empty() {
		t.Errorf("still queued: %+v", a)
	}
}

// TestFollowerGroupsUnderFaults checks groups while messages are lost, duplicated and delayed,
// leaders change, and members hang. Every renewal has one outcome, and no lease ends before its
// holder stops using it. When all holders are gone, no lease is left.
func TestFollowerGroupsUnderFaults(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			const leases = 6
			ttls := [...]lease.TTL{1500, 2500}
			c, sent := relaying(t, 0, 0)
			for id := range lease.ID(leases) {
				c.propose(c.members[1], &fsm.Grant{
					Terms: lease.Terms{ID: id + 1, TTL: ttls[id%2]},
				}, "grant", fmt.Sprint(id+1))
			}
			c.run()
			sent.lose = func(m *Message) bool { return m.Raft == nil && rng.IntN(12) == 0 }
			type request struct {
				id lease.ID
				at lease.Instant
			}
			asked := make(map[string]request)
			var until [leases + 1]lease.Instant
			check := func() {
				t.Helper()
				for name, q := range asked {
					if got := c.asks[name]; got == fmt.Sprint("ttl ", ttls[(q.id-1)%2]) {
						until[q.id] = max(until[q.id], q.at+lease.Instant(ttls[(q.id-1)%2]))
					}
					if c.asks[name] != "" {
						delete(asked, name)
					}
				}
				for id := lease.ID(1); id <= leases; id++ {
					for _, p := range c.members {
						if _, ok := p.r.lessor.Lookup(id); !ok && c.now < until[id] {
							t.Fatalf("lease %d ended at %d, its holder stops at %d", id, c.now, until[id])
						}
					}
				}
			}
			for range 250 {
				p := c.members[1+rng.Uint64N(3)]
				on := link2{p.id, 1 + (p.id+rng.Uint64N(2))%3}
				switch rng.IntN(16) {
				case 0:
					_ = p.r.Transfer(1 + rng.Uint64N(3))
				case 1:
					c.twice[on] = !c.twice[on]
				case 2:
					c.cut[on] = !c.cut[on]
				case 3:
					if held, ok := c.held[on]; ok {
						delete(c.held, on)
						c.late = append(c.late, held...)
					} else {
						c.held[on] = nil
					}
				case 4:
					for _, m := range c.late {
						c.arrive(m)
					}
					c.late = nil
				case 5:
					p.hung = !p.hung
				case 6:
					p.r.Abandon([]lease.ID{lease.ID(1 + rng.IntN(leases))})
				case 7:
					clear(c.cut)
					for _, o := range c.members {
						o.hung = false
					}
				default:
					if p.hung {
						break
					}
					for _, name := range c.renewAll(p, lease.ID(1+rng.IntN(leases)), lease.ID(1+rng.IntN(leases))) {
						var id lease.ID
						var member uint64
						if _, err := fmt.Sscanf(name, "%d: renew all %d", &member, &id); err != nil {
							t.Fatal(err)
						}
						asked[name] = request{id, c.now}
					}
				}
				c.run()
				c.pass(lease.Instant(rng.IntN(150)))
				check()
			}
			clear(c.cut)
			clear(c.held)
			sent.lose = nil
			for _, p := range c.members {
				p.hung = false
			}
			for range 60 {
				c.pass(100)
				check()
			}
			if len(asked) > 0 {
				t.Errorf("without an outcome: %v", asked)
			}
			for _, p := range c.members {
				if n := len(slices.Collect(p.r.lessor.Leases())); n > 0 {
					t.Errorf("member %d has %d leases without holders", p.id, n)
				}
			}
		})
	}
}
