package replica

import (
	"errors"
	"testing"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// cramped returns a sole voter that leads. Its log has space for 64 bytes of uncommitted entries,
// about one entry.
func cramped(t *testing.T, batch int) *member {
	t.Helper()
	m := start(t)
	var err error
	m.r, err = New(Config{
		ID: self, Log: m.log, Machine: m.m, ElectionTicks: 10, HeartbeatTicks: 1,
		MaxBatch: batch, MaxExpire: 4, MaxUncommitted: 64, Logger: discard,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.r.Campaign(); err != nil {
		t.Fatal(err)
	}
	m.settle()
	return m
}

// TestChangeWithoutRoom proposes two membership changes that do not fit into the log. Raft still
// treats the first as in flight, and turns the second into an empty entry. Both changes are
// rejected, and later commands are answered.
func TestChangeWithoutRoom(t *testing.T) {
	m := cramped(t, 1<<20)
	put := &Proposal{Command: &fsm.Put{Key: "k", Value: make([]byte, 100)}}
	m.r.Propose(put)
	m.take() // the put is being synced
	for range 2 {
		p := &Proposal{Command: &fsm.AddMember{
			Member: fsm.Member{ID: 9, PeerURLs: []string{"nine"}, Learner: true},
		}}
		m.r.Propose(p)
		m.take()
		if !errors.Is(p.Err, ErrOverloaded) {
			t.Fatalf("change: %v, want %v", p.Err, ErrOverloaded)
		}
	}
	m.settle()
	if put.Result.Revision == 0 {
		t.Error("the put before the changes was not answered")
	}
	if r := m.do(&fsm.Put{Key: "k"}); r.Err != nil || r.Revision != put.Result.Revision+1 {
		t.Errorf("put after the changes: %+v", r)
	}
	add := &fsm.AddMember{
		Member: fsm.Member{ID: 9, PeerURLs: []string{"nine"}, Learner: true},
	}
	if r := m.do(add); r.Err != nil {
		t.Errorf("change with room: %v", r.Err)
	}
}

// TestExpiryWithoutRoom checks that an expiry that was rejected because the log was full is
// proposed again as soon as there is space (T12).
func TestExpiryWithoutRoom(t *testing.T) {
	m := cramped(t, 1<<20)
	m.grant(1, 1000)
	m.pass(900)
	// The disk is slow, so the log is full while the put is being synced.
	m.r.Propose(&Proposal{Command: &fsm.Put{Key: "k", Value: make([]byte, 100)}})
	m.take()
	m.now += 200
	m.r.Advance(m.now)
	for range groupMax { // with groupMax waiting, the next entry does not wait for the sync
		m.r.Propose(&Proposal{Command: &fsm.Put{Key: "k"}})
	}
	m.take()
	if !m.alive(1) {
		t.Fatal("expired without room in the log")
	}
	if !m.r.lead.expiry.waits(m.r.now) {
		t.Error("the refused expiry was proposed again at once")
	}
	m.settle()
	m.pass(2)
	if m.alive(1) {
		t.Errorf("not decided again; status %+v", m.r.Status())
	}
	m.grant(lease.ID(2), 1000)
	m.pass(1100)
	if m.alive(2) {
		t.Errorf("the next lease did not end; status %+v", m.r.Status())
	}
}

// TestOrphanWithoutRoom checks that an orphan with an empty cache is dropped as soon as the log has
// space, even if the log was full at first.
func TestOrphanWithoutRoom(t *testing.T) {
	m := cramped(t, 2) // one command per entry
	m.do(&fsm.Grant{Terms: lease.Terms{ID: 1, TTL: 60_000}, Holds: []keyrange.Range{keyrange.All}})
	m.r.Propose(&Proposal{Command: &fsm.Revoke{ID: 1}})
	m.take()
	m.r.Propose(&Proposal{Command: &fsm.Put{Key: "k", Value: make([]byte, 100)}})
	m.persist()
	m.take() // the lease is now revoked, and the put fills the log
	if info := m.r.CacheStats(); info.Caches != 1 || len(m.appends) == 0 {
		t.Fatalf("%d caches, %d appends wait for the disk", info.Caches, len(m.appends))
	}
	m.settle()
	if n := m.r.CacheStats().Caches; n != 0 {
		t.Errorf("%d orphans left", n)
	}
}

// TestClearingWithoutRoom checks that a renewal fails with an unknown outcome if the log is full
// when a checkpoint has to be cleared.
func TestClearingWithoutRoom(t *testing.T) {
	m := cramped(t, 1<<20)
	m.grant(1, 9000)
	m.pass(4000)
	if info, _ := m.m.Lessor().Lookup(1); info.Remaining == 0 {
		t.Fatal("a silent lease has no checkpoint")
	}
	m.r.Propose(&Proposal{Command: &fsm.Put{Key: "k", Value: make([]byte, 100)}})
	m.take()
	p := &Proposal{Command: &fsm.Put{Key: "k"}}
	m.r.Propose(p)
	for range groupMax { // with groupMax waiting, the next entry does not wait for the sync
		m.r.Propose(&Proposal{Command: &fsm.Put{Key: "k"}})
	}
	m.r.Renew(Renewal{ID: 1})
	if m.take(); !errors.Is(p.Err, ErrOverloaded) {
		t.Errorf("put without room: %v", p.Err)
	}
	if n := m.renewals[1]; len(n) != 1 || !errors.Is(n[0].Err, ErrOverloaded) {
		t.Fatalf("renewals %+v", n)
	}
	m.settle()
	rounds := m.r.lead.rounds.last
	if n := m.renew(1); n.Err != nil || n.TTL != 9000 {
		t.Errorf("with room: %+v", n)
	}
	if m.r.lead.rounds.last != rounds {
		t.Error("the clearing entry did not confirm the promise")
	}
}
