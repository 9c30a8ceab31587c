package replica

import (
	"testing"

	"leasehold.dev/internal/fsm"
)

// TestRenewalIsRetriedAtOnce checks that a renewal is retried in the same step if its lease has a
// different token when the promise is confirmed.
func TestRenewalIsRetriedAtOnce(t *testing.T) {
	m := lead(t)
	m.grant(1, 5000)
	m.r.Propose(&Proposal{Command: &fsm.HandOver{ID: 1, Token: m.token(1)}})
	m.take()
	m.persist() // committed; applied in the next step
	m.r.Renew(Renewal{ID: 1})
	if m.take(); len(m.renewals[1]) != 1 || m.renewals[1][0].TTL != 5000 {
		t.Errorf("answered %+v", m.renewals[1])
	}
}

// TestRoundsOfAnEarlierTerm checks that a re-elected leader does not mistake confirm rounds from
// its earlier term for current ones.
func TestRoundsOfAnEarlierTerm(t *testing.T) {
	c := caching(t)
	p := c.members[1]
	for range 3 {
		c.read(p, 0)
		c.run()
	}
	last := p.r.lead.rounds.last
	c.isolate()
	c.reelected()
	if got := p.r.lead.rounds.last; last < 3 || got < last {
		t.Errorf("last round %d, was %d", got, last)
	}
}

// TestLeaderChangeReportsNothing checks that if there are no slow caches, a leader change does not
// cause a report about them. A member that has already seen the new leader does not plan a
// campaign.
func TestLeaderChangeReportsNothing(t *testing.T) {
	c := caching(t)
	c.members[2].r.Gone(1)
	c.members[3].r.Gone(1)
	if c.members[3].r.failover.at == 0 {
		t.Fatal("no campaign planned")
	}
	c.run()
	news := false
	for _, id := range c.ids() {
		news = news || c.members[id].slow != nil
	}
	if at := c.members[3].r.failover.at; at != 0 || news {
		t.Errorf("campaign planned at %d; slow caches reported: %v", at, news)
	}
}
