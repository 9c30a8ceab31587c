package replica

import (
	"errors"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/replica/silence"
	"leasehold.dev/lease"
)

// brokenLog is a log whose reads fail.
type brokenLog struct {
	*raft.MemoryStorage
	state, end error
	fails      int // number of the LastIndex call that fails, counted from 1
	asked      int
}

func (l *brokenLog) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	h, c, err := l.MemoryStorage.InitialState()
	return h, c, errors.Join(err, l.state)
}

func (l *brokenLog) LastIndex() (uint64, error) {
	n, err := l.MemoryStorage.LastIndex()
	if l.asked++; l.asked == l.fails {
		err = errors.Join(err, l.end)
	}
	return n, err
}

// TestNewFails checks that New returns the error of a log that cannot be read. The failing read
// comes after the library has read the log, since the library would panic.
func TestNewFails(t *testing.T) {
	m := start(t)
	broken := errors.New("broken")
	begin := func(log *brokenLog) (*Replica, error) {
		cfg := m.r.cfg
		cfg.Log = log
		return New(cfg)
	}
	good := &brokenLog{MemoryStorage: m.log}
	if _, err := begin(good); err != nil {
		t.Fatal(err)
	}
	r, err := begin(&brokenLog{MemoryStorage: m.log, state: broken})
	if r != nil || !errors.Is(err, broken) {
		t.Errorf("without a state: %v", err)
	}
	r, err = begin(&brokenLog{MemoryStorage: m.log, end: broken, fails: good.asked})
	if r != nil || !errors.Is(err, broken) {
		t.Errorf("without an end: %v", err)
	}
}

// TestForwardOfAnotherTerm checks that a leader ignores commands forwarded in another term. The
// sender will resend them, so they would be executed twice if the leader accepted them (S2).
func TestForwardOfAnotherTerm(t *testing.T) {
	m := lead(t)
	term := m.r.Status().Term
	for _, of := range []uint64{term - 1, term + 1, term} {
		before := m.entries
		if err := m.r.Step(&Message{Version: 1, From: 2, To: self, Forward: &Forward{
			Term: of, First: 1, Base: 1, Commands: []fsm.Command{&fsm.Put{Key: "k"}},
		}}); err != nil {
			t.Fatal(err)
		}
		if m.settle(); m.entries != before && of != term || m.entries == before && of == term {
			t.Errorf("a forward of term %d in term %d: %d entries", of, term, m.entries-before)
		}
	}
}

// TestReplyOfNonLeader checks that only the leader of the current term can answer a request.
func TestReplyOfNonLeader(t *testing.T) {
	c := caching(t)
	p := c.members[2]
	c.propose(p, &fsm.Grant{Terms: lease.Terms{ID: 1, TTL: 5000}}, "grant")
	c.run()
	c.cut[link2{2, 1}] = true
	c.renew(p, 1)
	c.run()
	seq, term := p.r.relay.asks.open[0].seq, p.r.term
	for _, m := range []struct {
		from, term uint64
		answers    bool
	}{{3, term, false}, {1, term - 1, false}, {1, term + 1, false}, {1, term, true}} {
		c.check(p.r.Step(&Message{Version: 1, From: m.from, To: 2, Reply: &Reply{
			Term: m.term, Renewed: []Renewed{{Seq: seq, TTL: 5000}},
			AboutSlow: true, Slow: []SlowNotice{{ID: 1}},
		}}))
		c.run()
		answered := c.asks["2: renew 1"] != ""
		if answered != m.answers || (len(p.r.slow.list) > 0) != m.answers {
			t.Errorf("reply from %d in term %d: answered %v", m.from, m.term, answered)
		}
	}
}

// watching starts a cluster led by member 1 whose members monitor each other.
func watching(t *testing.T) *cluster {
	t.Helper()
	c := newCluster(t, 1, 2, 3)
	c.silence = silence.Config{Heartbeat: 100, Most: 1000}
	for _, id := range c.ids() {
		c.start(c.members[id])
	}
	c.check(c.members[1].r.Campaign())
	c.pass(1000)
	return c
}

// TestDelayedMember checks that a member that was itself delayed does not conclude anything from
// messages that were missing in the meantime.
func TestDelayedMember(t *testing.T) {
	for _, hung := range []bool{false, true} {
		c := watching(t)
		p := c.members[2]
		c.cut[link2{1, 2}] = true
		c.pass(200)
		if p.hung = hung; !hung {
			c.pass(200)
		} else {
			c.pass(400)
		}
		clear(c.cut)
		p.hung = false
		c.pass(200)
		for _, s := range p.r.Silences() {
			if s.Member == 1 && (s.Limit > 300) == hung {
				t.Errorf("delayed %v: another member may be silent for %d", hung, s.Limit)
			}
		}
	}
}

// TestCacheStatsWithoutTheLead checks that a member that does not lead, or is not yet primary,
// reports no caches.
func TestCacheStatsWithoutTheLead(t *testing.T) {
	follower, early := start(t, 2), start(t)
	if err := early.r.Campaign(); err != nil {
		t.Fatal(err)
	}
	for early.take(); !early.r.Status().Leading; early.take() {
		early.persist()
	}
	for _, m := range []*member{follower, early} {
		if got := m.r.CacheStats(); got.Caches != 0 {
			t.Errorf("caches %+v", got)
		}
	}
}

// TestOverdueInTheLog checks that the longest overdue time is reported while the expiry's entry is
// being synced (T12).
func TestOverdueInTheLog(t *testing.T) {
	m := lead(t)
	m.grant(1, 1000)
	m.pass(900)
	due, _ := m.m.Lessor().Expiry(1)
	m.now += 150
	m.r.Advance(m.now)
	m.take()
	m.now += 50
	m.r.Advance(m.now)
	if got := m.r.Status().Overdue; got != lease.TTL(m.now-due) {
		t.Errorf("overdue for %d at %d, due at %d", got, m.now, due)
	}
}

// TestSlowCachesNeedALeader checks that a member without a leader drops its list of slow caches
// after some ticks.
func TestSlowCachesNeedALeader(t *testing.T) {
	m := start(t, 2)
	m.r.slow.set([]SlowNotice{{ID: 1}}, m.r.ticks)
	for range slowSilence * m.r.cfg.ElectionTicks {
		m.r.Tick()
		m.take()
	}
	if len(m.r.slow.list) > 0 {
		t.Errorf("slow are %v", m.r.slow.list)
	}
}

// TestElectionsAreCounted checks that a member's election count includes only its own campaigns,
// whether won or lost, including those of a sole voter.
func TestElectionsAreCounted(t *testing.T) {
	if n := lead(t).r.Status().Elections; n != 1 {
		t.Errorf("a sole voter began %d elections", n)
	}
	c := caching(t)
	c.lose = func(m *Message) bool { return m.Raft.GetType() == raftpb.MsgVote }
	c.members[2].r.Gone(1)
	c.members[3].r.Gone(1)
	c.run()
	for id, want := range map[uint64]uint64{1: 1, 2: 1, 3: 0} {
		if s := c.members[id].r.Status(); s.Elections != want || s.Leading != (id == 1) {
			t.Errorf("member %d began %d elections; leads: %v", id, s.Elections, s.Leading)
		}
	}
	p := c.members[2]
	c.check(p.r.Step(raftMessage(&raftpb.Message{ // p responds in its current term
		Type: raftpb.MsgHeartbeat.Enum(), From: new(uint64(1)), To: new(uint64(2)),
		Term: new(p.r.term - 1),
	})))
	if p.r.Take(); p.r.Status().Elections != 1 {
		t.Errorf("a candidate began %d elections", p.r.Status().Elections)
	}
}
