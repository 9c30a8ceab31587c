package replica

import (
	"testing"

	"leasehold.dev/lease"
)

// TestUnanswered: what clients of this member asked goes to the next leader, and nothing that
// others, or the leader itself, wanted. All promises are taken back.
func TestUnanswered(t *testing.T) {
	mine := &Proposal{}
	if got := own([]*Proposal{
		{internal: &internal{}}, mine, forwardedBy(2),
	}); len(got) != 1 || got[0] != mine {
		t.Errorf("commands %v", got)
	}
	whole := &Renewals{IDs: []lease.ID{1, 2}, TTLs: []lease.TTL{5, 5}, Kept: 2}
	part := &Renewals{IDs: []lease.ID{3, 4}, TTLs: []lease.TTL{0, 5}, Kept: 1}
	other := &Renewals{IDs: []lease.ID{5}, TTLs: []lease.TTL{5}, Kept: 1, from: 2}
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
	if len(q.batches) != 1 || q.batches[0] != whole || whole.Kept != 0 || whole.TTLs[0] != 0 {
		t.Errorf("batches %+v", q.batches)
	}
	if n := q.renewals; len(n) != 2 || n[0].ID != 6 || n[0].TTL != 0 || n[0].token != 0 ||
		n[1].ID != 4 {
		t.Errorf("renewals %+v", n)
	}
}

func forwardedBy(member uint64) *Proposal {
	p := &Proposal{}
	p.origin.Member = member
	return p
}

// TestRelayOpensAgain: an OpenCache without an answer is asked again, although nothing else waits.
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
		t.Errorf("%d messages are sent", n)
	}
}
