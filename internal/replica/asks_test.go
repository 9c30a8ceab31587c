package replica

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/holder"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// newAsker returns an asker for a member that has a leader and an empty state.
func newAsker() *asker {
	machine := fsm.New(fsm.Config{})
	return &asker{m: &local{
		cfg: Config{ID: 1, ElectionTicks: 10, HeartbeatTicks: 1}, role: role{term: 3, leader: 2},
		machine: machine, lessor: machine.Lessor(),
	}}
}

// filled returns the next message to the leader.
func (a *asker) filled() *Forward {
	m := new(Forward)
	a.fill(m, a.m.ticks)
	return m
}

// answered returns the IDs and errors of the answered renewals.
func (a *asker) answered() (ids []lease.ID, errs []error) {
	for _, n := range a.m.out.Renewals {
		ids, errs = append(ids, n.ID), append(errs, n.Err)
	}
	a.m.out.Renewals = nil
	return ids, errs
}

func asksAbout(leases int, size int) *Read {
	q := &Read{Leases: make([]lease.ID, leases)}
	if size > 0 {
		q.Fill = &Fill{Ranges: []keyrange.Range{{Key: strings.Repeat("k", size-8)}}}
	}
	return q
}

// TestRoundsAreBounded checks that a round contains at most as many leases and reads as fit into
// one message. The remaining reads wait for the next round.
func TestRoundsAreBounded(t *testing.T) {
	for name, c := range map[string]struct {
		reads []*Read
		first int
	}{
		"few":                  {[]*Read{asksAbout(1, 0), asksAbout(2, 9)}, 2},
		"many leases":          {[]*Read{asksAbout(maxForwarded, 0), asksAbout(0, 0)}, 1},
		"one lease fewer":      {[]*Read{asksAbout(maxForwarded-1, 0), asksAbout(1, 0), asksAbout(1, 0)}, 2},
		"large fills":          {[]*Read{asksAbout(0, maxCacheBytes), asksAbout(0, 9)}, 1},
		"one fill fewer":       {[]*Read{asksAbout(0, maxCacheBytes-1), asksAbout(0, 9), asksAbout(0, 9)}, 2},
		"both, and a few more": {[]*Read{asksAbout(9, maxCacheBytes), asksAbout(0, 0)}, 1},
	} {
		a := newAsker()
		for _, q := range c.reads {
			a.read(q)
		}
		a.filled()
		if n := len(a.current.reads); n != c.first || len(a.reads) != len(c.reads)-n {
			t.Errorf("%s: %d reads in the first round, want %d", name, n, c.first)
		}
	}
}

// TestRequestsRefusedWhenFull checks that requests that do not fit are rejected immediately.
// Acknowledgements and reports of abandoned leases can be dropped.
func TestRequestsRefusedWhenFull(t *testing.T) {
	a := newAsker()
	a.agent.Joined(0, holder.Join[struct{}]{ID: 1, Group: 1, TTL: 5000})
	for range maxForwarded / 2 {
		a.renew(Renewal{ID: 1}) // waits for a round
		a.renew(Renewal{ID: 2})
	}
	a.renew(Renewal{ID: 1})
	a.renew(Renewal{ID: 7})
	if ids, errs := a.answered(); !slices.Equal(ids, []lease.ID{1, 7}) ||
		!errors.Is(errs[0], ErrOverloaded) || len(a.renewals) != maxForwarded/2 {
		t.Errorf("answered %v, %v; %d requested", ids, errs, len(a.renewals))
	}
	a.openCache(OpenCache{ID: 8})
	if o := a.m.out.Opened; len(o) != 1 || !errors.Is(o[0].Err, ErrOverloaded) || !a.caches.empty() {
		t.Errorf("answered %+v", o)
	}
	for range maxForwarded + 1 {
		a.ack(AckCache{})
		a.abandon([]lease.ID{3})
	}
	if n, k := len(a.caches.acks), len(a.abandoned); n != maxForwarded || k != maxForwarded {
		t.Errorf("%d acknowledgements and %d leases pending", n, k)
	}
	a = newAsker()
	a.m.leader = 0
	if a.abandon([]lease.ID{1}); len(a.abandoned) != 0 {
		t.Error("a report waits although there is no leader")
	}
}

// TestAskerIsEmpty checks that an asker is empty when nothing is waiting for the leader or for
// delivery.
func TestAskerIsEmpty(t *testing.T) {
	for name, wait := range map[string]func(*asker){
		"nothing": func(*asker) {},
		"read":    func(a *asker) { a.read(&Read{}) },
		"asked":   func(a *asker) { a.read(&Read{}); a.filled() },
		"renewal": func(a *asker) { a.renew(Renewal{}) },
		"open":    func(a *asker) { a.renew(Renewal{}); a.filled(); a.current = nil },
		"answered": func(a *asker) {
			a.read(&Read{})
			a.filled()
			a.confirmed(&Reply{Round: a.last, Index: 9})
		},
		"group": func(a *asker) {
			a.agent.Joined(0, holder.Join[struct{}]{ID: 1, Group: 1, TTL: 5000})
			a.renew(Renewal{ID: 1})
		},
		"leave": func(a *asker) {
			a.agent.Joined(0, holder.Join[struct{}]{ID: 1, Group: 1, TTL: 5000})
			a.abandon([]lease.ID{1})
			a.filled()
		},
		"cache": func(a *asker) { a.openCache(OpenCache{}) },
	} {
		a := newAsker()
		if wait(a); a.empty() != (name == "nothing") {
			t.Errorf("%s: empty %v", name, a.empty())
		}
	}
}

// TestAskerChangesLeader checks that a new leader receives, once and in order, all requests that
// the old leader left unanswered. Reports of abandoned leases are dropped.
func TestAskerChangesLeader(t *testing.T) {
	a := newAsker()
	first, second := &Read{}, &Read{}
	a.read(first)
	a.openCache(OpenCache{ID: 1})
	for id := range lease.ID(3) {
		a.renew(Renewal{ID: id + 1})
	}
	asked := a.filled().Renewals
	a.renewed(&Reply{Renewed: []Renewed{{Seq: asked[1].Seq, TTL: 5}}})
	a.read(second)
	a.renew(Renewal{ID: 4})
	a.openCache(OpenCache{ID: 2})
	a.abandon([]lease.ID{9})
	a.rewind()
	m := a.filled()
	var renewed, opened []lease.ID
	for _, n := range m.Renewals {
		renewed = append(renewed, n.ID)
	}
	for _, o := range m.Opens {
		opened = append(opened, o.ID)
	}
	if !slices.Equal(a.current.reads, []*Read{first, second}) ||
		!slices.Equal(opened, []lease.ID{1, 2}) ||
		!slices.Equal(renewed, []lease.ID{1, 3, 4}) || len(m.Abandoned) != 0 {
		t.Errorf("requested %v, %v and %d reads", renewed, opened, len(a.current.reads))
	}
	all := a.take()
	if !a.empty() || len(all.reads) != 2 || len(all.renewals) != 3 || len(all.opens) != 2 {
		t.Errorf("took %+v", all)
	}
	b := newAsker()
	if b.give(all); !reflect.DeepEqual(b.take(), all) {
		t.Errorf("the returned requests differ from %+v", all)
	}
}

// TestAskedAgain checks that lost requests are resent: a round after two heartbeats, a renewal
// after an election timeout.
func TestAskedAgain(t *testing.T) {
	a := newAsker()
	a.read(&Read{})
	a.renew(Renewal{ID: 1})
	a.renew(Renewal{ID: 2})
	a.renew(Renewal{ID: 3})
	a.openCache(OpenCache{ID: 4})
	asked := a.filled()
	a.renewed(&Reply{Renewed: []Renewed{{Seq: asked.Renewals[0].Seq, TTL: 5}}})
	var rounds, renewals, opens []uint64
	for a.m.ticks < 25 {
		a.m.ticks++
		m := new(Forward)
		if a.again(m); m.Round == asked.Round {
			rounds = append(rounds, a.m.ticks)
		}
		for _, n := range m.Renewals {
			renewals = append(renewals, a.m.ticks, uint64(n.ID))
		}
		for range m.Opens {
			opens = append(opens, a.m.ticks)
		}
	}
	if !slices.Equal(rounds[:3], []uint64{2, 4, 6}) || len(rounds) != 12 {
		t.Errorf("the round was repeated at %v", rounds)
	}
	if !slices.Equal(renewals, []uint64{10, 2, 10, 3, 20, 2, 20, 3}) {
		t.Errorf("leases repeated, by tick: %v", renewals)
	}
	if !slices.Equal(opens, []uint64{10, 20}) {
		t.Errorf("caches were reopened at %v", opens)
	}
}
