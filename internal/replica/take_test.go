package replica

import (
	"testing"

	"leasehold.dev/internal/fsm"
)

// Goal: what an answer brings up goes on in the same step. Method: a renewal of a lease that has
// another token when its promise is confirmed, which is tried again.
func TestRenewalIsTriedAgainAtOnce(t *testing.T) {
	m := lead(t)
	m.grant(1, 5000)
	m.r.Propose(&Proposal{Command: &fsm.HandOver{ID: 1, Token: m.token(1)}})
	m.take()
	m.persist() // committed, and applied in the next step
	m.r.Renew(Renewal{ID: 1})
	if m.take(); len(m.renewals[1]) != 1 || m.renewals[1][0].TTL != 5000 {
		t.Errorf("answered %+v", m.renewals[1])
	}
}

// A leader that leads again does not take the confirm rounds of its earlier term for its own.
func TestRoundsOfAnEarlierTerm(t *testing.T) {
	c := caching(t)
	p := c.members[1]
	for range 3 {
		c.read(p, 0)
		c.run()
	}
	last := p.r.lead.rounds.Last()
	c.isolate()
	c.again()
	if got := p.r.lead.rounds.Last(); last < 3 || got < last {
		t.Errorf("the last round is %d, and was %d", got, last)
	}
}

// A command that is too large makes no entry.
func TestTooLargeMakesNoEntry(t *testing.T) {
	m := lead(t)
	before := m.entries
	p := &Proposal{Command: &fsm.Put{Key: "k", Value: make([]byte, MaxCommand)}}
	m.r.Propose(p)
	if m.settle(); p.Err != ErrTooLarge || m.entries != before {
		t.Errorf("%v, %d entries", p.Err, m.entries-before)
	}
}

// A change of the leader is no news about slow caches if there are none, and a member that another
// was elected before plans no campaign.
func TestChangeOfLeaderWithoutNews(t *testing.T) {
	c := caching(t)
	c.members[2].r.Gone(1)
	c.members[3].r.Gone(1)
	if c.members[3].r.failover.at == 0 {
		t.Fatal("no campaign is planned")
	}
	c.run()
	news := false
	for _, id := range c.ids() {
		news = news || c.members[id].slow != nil
	}
	if at := c.members[3].r.failover.at; at != 0 || news {
		t.Errorf("a campaign is planned at %d; news of slow caches: %v", at, news)
	}
}
