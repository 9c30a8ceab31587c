package replica

import (
	"errors"
	"fmt"
	"testing"

	"leasehold.dev/internal/directory"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// TestManyCachesToCheck checks that puts that require checking many caches do not make a step long.
// The remaining puts pass the gate in order in the following steps, which start immediately.
func TestManyCachesToCheck(t *testing.T) {
	const caches, puts, most = 300, 2000, 262_144/300 + 1
	m := lead(t)
	for id := lease.ID(1); id <= caches; id++ {
		m.do(&fsm.Grant{
			Terms: lease.Terms{ID: id, TTL: 60_000}, Holds: []keyrange.Range{{Key: "c/", End: "c0"}},
		})
	}
	m.settle()
	m.proposals = nil
	for i := range puts - 1 {
		m.r.Propose(&Proposal{Command: &fsm.Put{Key: fmt.Sprintf("c/%d", i)}})
	}
	early := len(m.r.lead.gate.early)
	if early != puts-1-most {
		t.Errorf("%d of %d wait for the next step", early, puts)
	}
	m.take()
	m.persist()
	// proposed after the others
	m.r.Propose(&Proposal{Command: &fsm.Put{Key: fmt.Sprintf("c/%d", puts-1)}})
	early = len(m.r.lead.gate.early)
	for steps := 0; early > 0; steps++ {
		if at, ok := m.r.Next(); !ok || at > m.now {
			t.Errorf("%d wait, next step at %d, %v", early, at, ok)
		}
		m.take()
		m.persist()
		now := len(m.r.lead.gate.early)
		if early-now > most || steps > 5 {
			t.Fatalf("step %d: %d passed, %d wait", steps, early-now, now)
		}
		early = now
	}
	m.settle()
	if len(m.proposals) != puts {
		t.Fatalf("%d of %d answered", len(m.proposals), puts)
	}
	for i, p := range m.proposals {
		if want := fmt.Sprintf("c/%d", i); p.Command.(*fsm.Put).Key != want || p.Err != nil {
			t.Fatalf("answer %d: %+v, %v", i, p.Command, p.Err)
		}
	}
}

// TestGateQueueIsBounded checks that only a bounded number of client commands can wait before the
// gate. The leader's own commands do not wait there.
func TestGateQueueIsBounded(t *testing.T) {
	m := lead(t)
	gate := &m.r.lead.gate
	client, own := &Proposal{Command: &fsm.Put{Key: "k"}}, &Proposal{internal: &internal{}}
	for _, c := range []struct {
		waiting int
		p       *Proposal
		now     bool
		want    error
	}{
		{maxEarly - 1, client, false, nil},
		{maxEarly, client, false, ErrOverloaded},
		{maxEarly, own, true, nil},
	} {
		gate.early = make([]*Proposal, c.waiting)
		now, err := gate.ask(c.p)
		kept := len(gate.early) > c.waiting
		if now != c.now || !errors.Is(err, c.want) || kept != (err == nil && !now) {
			t.Errorf("after %d: %v, %v, kept %v", c.waiting, now, err, kept)
		}
	}
}

// TestExpiryBesideManyCommands checks that client commands that wait for several steps because of
// many caches do not delay the end of a lease (L2).
func TestExpiryBesideManyCommands(t *testing.T) {
	const caches, puts, id = 300, 5000, 1000
	m := lead(t)
	m.grant(id, 2000)
	m.do(&fsm.Put{Key: "c/k", Lease: id})
	for n := range lease.ID(caches) {
		m.do(&fsm.Grant{
			Terms: lease.Terms{ID: n + 1, TTL: 60_000}, Holds: []keyrange.Range{{Key: "c/", End: "c0"}},
		})
	}
	m.now += 2001
	m.r.Advance(m.now)
	for i := range puts {
		m.r.Propose(&Proposal{Command: &fsm.Put{Key: fmt.Sprintf("c/%d", i)}})
	}
	m.take()
	m.persist()
	m.take()
	if early := len(m.r.lead.gate.early); m.alive(id) || early == 0 {
		t.Errorf("alive %v, and %d commands wait", m.alive(id), early)
	}
}

// TestCommandsBesideLargeExpiries checks that client commands are not delayed by leases whose
// expiry needs more cache checks than a step allows for client commands.
func TestCommandsBesideLargeExpiries(t *testing.T) {
	const caches, leases, keys, puts = 300, 10, 1000, 2000 // 300,000 checks per lease
	m := lead(t)
	m.r.cfg.MaxExpire = 512
	for id := lease.ID(1001); id <= 1000+leases; id++ {
		m.r.Propose(&Proposal{Command: &fsm.Grant{Terms: lease.Terms{ID: id, TTL: 1000}}})
		for n := range keys {
			m.r.Propose(&Proposal{Command: &fsm.Put{Key: fmt.Sprintf("c/%d/%d", id, n), Lease: id}})
		}
	}
	m.finish()
	for id := range lease.ID(caches) {
		m.do(&fsm.Grant{
			Terms: lease.Terms{ID: id + 1, TTL: 60_000}, Holds: []keyrange.Range{{Key: "c/", End: "c0"}},
		})
	}
	m.now += 1001
	m.r.Advance(m.now)
	for range puts {
		m.r.Propose(&Proposal{Command: &fsm.Put{Key: "c/k"}})
	}
	for steps := 1; len(m.r.lead.gate.early) > 0; steps++ {
		m.take()
		if steps > 5 {
			t.Fatalf("after %d steps %d commands wait, %d leases are left", steps,
				len(m.r.lead.gate.early), m.m.Lessor().Len()-caches)
		}
		m.persist()
	}
}

// TestManyExpireSingly checks that no matter how many leases with cached keys end together, a
// client's command completes with the next entry, and each step does only part of the work. All
// caches acknowledge late and in the same step, and each step has a put.
func TestManyExpireSingly(t *testing.T) {
	const leases, caches, steps = 3000, 4, 40
	m := manyDue(t, leases, caches)
	left := leases
	for n := 0; left > 0; n++ {
		singles := m.r.lead.gate.singles.list.Len()
		m.r.Propose(&Proposal{Command: &fsm.Put{Key: "k"}})
		if n >= steps {
			for _, n := range m.invalidations {
				m.r.AckCache(AckCache{
					ID: n.ID, Token: n.Token, Term: n.Term, Seq: n.Seq, Open: n.Term,
				})
			}
			m.invalidations = nil
		}
		m.take()
		if more := m.r.lead.gate.singles.list.Len() - singles; more > expiryWork/32/caches+1 {
			t.Fatalf("step %d: %d more leases expiring", n, more)
		}
		now := m.m.Lessor().Len() - caches
		if left-now > 256 || n > 10*steps {
			t.Fatalf("step %d: %d leases ended, %d left", n, left-now, now)
		}
		if left = now; len(m.proposals) != n {
			t.Fatalf("step %d: %d puts answered", n, len(m.proposals))
		}
		m.persist()
	}
}

// manyDue returns a leader with due leases of one key each, and caches that have all of these keys.
func manyDue(tb testing.TB, leases, caches int) *member {
	m := lead(tb)
	m.r.cfg.MaxExpire = 512
	held := []keyrange.Range{{Key: "c/", End: "c0"}}
	for i := range leases {
		id := lease.ID(caches + 1 + i)
		m.r.Propose(&Proposal{Command: &fsm.Grant{Terms: lease.Terms{ID: id, TTL: 1000}}})
		m.r.Propose(&Proposal{Command: &fsm.Put{Key: fmt.Sprintf("c/%08d", i), Lease: id}})
	}
	m.finish()
	for i := range caches {
		id := lease.ID(1 + i)
		m.do(&fsm.Grant{Terms: lease.Terms{ID: id, TTL: 60_000}, Holds: held})
		info, _ := m.m.Lessor().Lookup(id)
		m.r.OpenCache(OpenCache{ID: id, Token: info.Token})
		m.settle()
		m.r.AckCache(AckCache{ID: id, Token: info.Token, Open: m.r.term})
		for i := range leases {
			f := Fill{ID: id, Token: info.Token, Ranges: []keyrange.Range{
				{Key: fmt.Sprintf("c/%08d", i)},
			}}
			if !m.r.lead.gate.fill(&f, directory.Origin{Member: self}) {
				tb.Fatal("the cache may not keep the keys")
			}
		}
	}
	m.proposals = nil
	m.now += 2000
	m.r.Advance(m.now)
	return m
}
