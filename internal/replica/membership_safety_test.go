package replica

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"leasehold.dev/internal/fsm"
)

// TestHealth checks which membership changes the leader, member 1, allows, depending on which
// voters are responsive.
func TestHealth(t *testing.T) {
	type ids = []uint64
	learners, bad := ids{7, 8}, ErrUnhealthy
	for name, c := range map[string]struct {
		voters, stable, fresh []uint64 // fresh members have only recently begun to respond
		lax                   bool
		add, remove           error
		// whether removing member 2 counts as removing an unresponsive member
		unresponsive bool
	}{
		"alone":                   {ids{1}, nil, nil, false, nil, nil, false},
		"two of two":              {ids{1, 2}, ids{2}, nil, false, nil, nil, false},
		"one of two":              {ids{1, 2}, nil, nil, false, bad, nil, true},
		"one of two, lax":         {ids{1, 2}, nil, nil, true, nil, nil, false},
		"three of three":          {ids{1, 2, 3}, ids{2, 3}, nil, false, nil, nil, false},
		"two of three":            {ids{1, 2, 3}, ids{2}, nil, false, bad, bad, false},
		"without the other":       {ids{1, 2, 3}, ids{3}, nil, false, bad, nil, true},
		"lax":                     {ids{1, 2, 3}, ids{2}, nil, true, nil, nil, false},
		"not long enough":         {ids{1, 2, 3}, ids{2}, ids{3}, false, bad, bad, false},
		"the removed one is down": {ids{1, 2, 3}, nil, ids{3}, false, bad, nil, true},
		"four of four":            {ids{1, 2, 3, 4}, ids{2, 3, 4}, nil, false, nil, nil, false},
		"three of four":           {ids{1, 2, 3, 4}, ids{2, 3}, nil, false, nil, nil, false},
		"two of four":             {ids{1, 2, 3, 4}, ids{2}, nil, false, bad, bad, false},
		"learners do not count":   {ids{1, 2, 3}, ids{2, 7, 8}, nil, false, bad, bad, false},
		"only learners":           {ids{1, 2}, ids{7, 8}, nil, false, bad, nil, true},
	} {
		m := fsm.New(fsm.Config{})
		m.Begin(1, 1)
		for _, id := range slices.Concat(c.voters, learners) {
			m.AddMember(fsm.Member{ID: id, Learner: slices.Contains(learners, id)})
		}
		links, now := &links{self: 1, timeout: 10}, times{now: 1000}
		for _, id := range slices.Concat(c.stable, c.fresh) {
			links.received(id, now)
			links.connected(id, now.now-499, now.now)
		}
		for _, id := range c.stable {
			links.connected(id, now.now-500, now.now)
		}
		rules := Membership{Strict: !c.lax, Stable: 500, MaxLearners: 2}
		h := health{machine: m, links: links, now: now, rules: rules}
		if err := h.affordAdd(false); !errors.Is(err, c.add) {
			t.Errorf("%s: add a voter: %v", name, err)
		}
		if err := h.affordAdd(true); !errors.Is(err, ErrTooManyLearners) {
			t.Errorf("%s: add a learner: %v", name, err)
		}
		if err := h.affordRemove(2); !errors.Is(err, c.remove) {
			t.Errorf("%s: remove member 2: %v", name, err)
		}
		if err := h.affordRemove(7); err != nil {
			t.Errorf("%s: remove a learner: %v", name, err)
		}
		if got := h.removesUnresponsive(&fsm.RemoveMember{ID: 2}); got != c.unresponsive {
			t.Errorf("%s: member 2 unresponsive: %v", name, got)
		}
		if h.removesUnresponsive(&fsm.RemoveMember{ID: 9}) || h.removesUnresponsive(&fsm.AddMember{}) ||
			h.removesUnresponsive(&fsm.RemoveMember{ID: 7}) && !slices.Contains(c.stable, 7) {
			t.Errorf("%s: another kind of change counts as removing an unresponsive voter", name)
		}
	}
}

// TestDamagedMemberStopsAndIsNotCounted checks that a damaged member can be removed if the others
// respond, even if they have only recently begun to. A damaged member does not count as responsive
// when another member is removed or added.
func TestDamagedMemberStopsAndIsNotCounted(t *testing.T) {
	m, links := fsm.New(fsm.Config{}), &links{self: 1, timeout: 10}
	m.Begin(1, 1)
	h := health{machine: m, links: links, rules: Membership{Strict: true, Stable: 500}}
	for id := range uint64(3) {
		m.AddMember(fsm.Member{ID: id + 1})
		links.received(id+1, h.now)
	}
	want := func(when string, what error, want error) {
		t.Helper()
		if !errors.Is(what, want) {
			t.Errorf("%s: %v, want %v", when, what, want)
		}
	}
	want("3 is removed", h.affordRemove(3), ErrUnhealthy)
	m.Apply(&fsm.HashState{})
	for id, hash := range []uint64{7, 7, 8} {
		at := m.HashedAt()
		m.Apply(&fsm.StateHash{Member: uint64(id) + 1, Index: at, Hash: hash})
	}
	want("3 is removed, damaged", h.affordRemove(3), nil)
	h.now.now = 1000 // all have responded for long enough
	want("2 is removed while 3 is damaged", h.affordRemove(2), ErrUnhealthy)
	want("4 is added while 3 is damaged", h.affordAdd(false), ErrUnhealthy)
	links.gone(2)
	want("3 is removed, damaged, and 2 is gone", h.affordRemove(3), ErrUnhealthy)
}

// TestUnknownLearnerIsNotPromoted checks that a learner whose process has not reported its identity
// cannot be promoted, even if it has the whole log.
func TestUnknownLearnerIsNotPromoted(t *testing.T) {
	for incarnation, want := range map[uint64]string{0: ErrLearnerNotReady.Error(), 4: "revision"} {
		c := caching(t)
		c.pass(1000)
		l, learner := c.members[1], fsm.Member{ID: 4, PeerURLs: []string{url(4)}, Learner: true}
		learner.Incarnation = incarnation
		c.want("a learner", c.command(l, &fsm.AddMember{Member: learner}), "revision")
		c.join(4)
		c.pass(500)
		c.want("promote", c.command(l, &fsm.PromoteMember{ID: 4}), want)
	}
}

// TestPromoteCaughtUpLearner checks that a learner can be promoted if it responds, receives new
// entries, and lags by no more than the limit.
func TestPromoteCaughtUpLearner(t *testing.T) {
	notReady := ErrLearnerNotReady.Error()
	for name, c := range map[string]struct {
		puts   int // number of entries that the learner lacks
		before func(l *Replica)
		want   string
	}{
		"has all":          {0, nil, "revision"},
		"lags a little":    {5, nil, "revision"},
		"lags":             {6, nil, notReady},
		"is down":          {0, func(l *Replica) { l.links.gone(1) }, notReady},
		"receives nothing": {0, func(l *Replica) { l.raft.node.ReportUnreachable(1) }, notReady},
	} {
		cl := newCluster(t, 2, 3, 4)
		l := cl.members[2]
		cl.check(l.r.Campaign())
		cl.pass(1000)
		learner := fsm.Member{ID: 1, PeerURLs: []string{url(1)}, Learner: true, Incarnation: 1}
		cl.want("a learner", cl.command(l, &fsm.AddMember{Member: learner}), "revision")
		cl.join(1)
		cl.pass(500)
		cl.cut[link2{2, 1}] = true
		for range c.puts {
			cl.want("put", cl.put(l, "k", 0), "revision")
		}
		if c.before != nil {
			c.before(l.r)
		}
		if got := cl.command(l, &fsm.PromoteMember{ID: 1}); !strings.HasPrefix(got(), c.want) {
			t.Errorf("%s: %q, want %q", name, got(), c.want)
		}
	}
}
