package replica

import (
	"slices"
	"testing"

	"leasehold.dev/lease"
)

// TestUnanswered checks that unanswered requests from this member's clients go to the next leader.
// Requests from other members and from the leader itself do not. All promises are withdrawn.
func TestUnanswered(t *testing.T) {
	mine := &Proposal{}
	if got := own([]*Proposal{
		{internal: &internal{}}, mine, forwardedBy(2),
	}); len(got) != 1 || got[0] != mine {
		t.Errorf("commands %v", got)
	}
	whole := &Renewals{IDs: []lease.ID{1, 2}, TTLs: []lease.TTL{5, 5}, Kept: 2}
	part := &Renewals{IDs: []lease.ID{3, 4}, TTLs: []lease.TTL{0, 5}, Kept: 1}
	other := &Renewals{
		IDs: []lease.ID{5}, TTLs: []lease.TTL{5}, Kept: 1, from: 2, sent: []Ask{{ID: 5}},
	}
	var q unanswered
	q.unconfirmed(&round{
		reads:    []*Read{{from: 2}, {}},
		opens:    []OpenCache{{ID: 1, from: 2}, {ID: 2}},
		renewals: []Renewal{{ID: 6, TTL: 5, token: 7}, {ID: 7, from: 2}},
		together: []*Renewals{whole, part, other},
	})
	q.ownRenewals()
	if len(q.reads) != 1 || len(q.opens) != 1 || q.opens[0].ID != 2 {
		t.Errorf("reads %v, caches %v", q.reads, q.opens)
	}
	if !slices.Equal(q.groups, []*Renewals{whole, part}) {
		t.Errorf("groups %+v", q.groups)
	}
	var ids []lease.ID
	for _, n := range q.renewals {
		if ids = append(ids, n.ID); n.TTL != 0 || n.token != 0 {
			t.Errorf("renewal %+v", n)
		}
	}
	if !slices.Equal(ids, []lease.ID{6, 1, 2, 4}) {
		t.Errorf("renewals of %v", ids)
	}
}

func forwardedBy(member uint64) *Proposal {
	p := &Proposal{}
	p.origin.Member = member
	return p
}

// TestRelayOpensAgain checks that an unanswered OpenCache is retried even if no other request is
// pending.
func TestRelayOpensAgain(t *testing.T) {
	m := newForwarder().m
	m.role = role{term: 3, leader: 1}
	r := newRelay(m, 1)
	r.asks.openCache(OpenCache{ID: 1})
	if r.send(); len(m.out.Send) != 1 || m.out.Send[0].Forward.Round != 0 {
		t.Fatalf("sent %v", m.out.Send)
	}
	for range m.cfg.ElectionTicks {
		m.ticks++
		r.tick()
	}
	if n := len(m.out.Send); n != 2 || len(m.out.Send[1].Forward.Opens) != 1 {
		t.Errorf("%d messages sent", n)
	}
}
