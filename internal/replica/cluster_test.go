package replica

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/replica/silence"
	"leasehold.dev/lease"
)

// cluster runs several members in one goroutine, in virtual time. After each input it runs until
// idle, except for messages and syncs that the test holds back. Every message is encoded and
// decoded.
type cluster struct {
	t       testing.TB
	members map[uint64]*peer
	now     lease.Instant
	cut     map[link2]bool // messages on these links are lost
	// if not nil, sees every other message and reports whether to drop it
	lose    func(*Message) bool
	held    map[link2][]*Message // messages on these links are held back
	twice   map[link2]bool       // messages on these links arrive twice
	late    []*Message           // messages taken off their links, to be delivered much later
	asks    map[string]string    // outcomes of client requests, by name
	open    []string             // names of requests without an outcome
	events  []string             // events since the last check
	sent    map[string]int       // number of messages by type
	silence silence.Config       // for members started from now on
}

type link2 struct{ from, to uint64 }

// peer is one member of a cluster.
type peer struct {
	id            uint64
	r             *Replica
	log           *raft.MemoryStorage
	disk          image // the latest snapshot
	appends       []*raftpb.Message
	inbox         []*Message
	incarnation   uint64
	began         lease.Instant
	entries       int // appended entries with data
	down          bool
	hung          bool // its process is paused
	stuck         bool // syncs hang
	removed       bool
	failed        error // the error that stopped it
	was           role
	invalidations []Invalidation // invalidations sent to its caches
	slow          []SlowCache    // currently slow caches
	were          []SlowCache    // every cache that the leader has ever reported as slow
	forwarded     []*Proposal    // forwarded commands with a trace
}

func newCluster(t testing.TB, voters ...uint64) *cluster {
	repeatElections(t)
	c := &cluster{
		t: t, members: make(map[uint64]*peer), now: 1000, cut: make(map[link2]bool),
		held: make(map[link2][]*Message), asks: make(map[string]string),
		sent: make(map[string]int), twice: make(map[link2]bool),
	}
	m := fsm.New(fsm.Config{})
	m.Begin(1, 1)
	for _, id := range voters {
		m.AddMember(fsm.Member{ID: id, Name: fmt.Sprint(id), PeerURLs: []string{url(id)}})
	}
	founding := encodeImage(t, m, &raftpb.ConfState{Voters: voters})
	for _, id := range voters {
		p := &peer{id: id, log: raft.NewMemoryStorage(), disk: founding}
		c.check(p.log.ApplySnapshot(&raftpb.Snapshot{Metadata: founding.meta}))
		c.check(p.log.SetHardState(&raftpb.HardState{
			Term: new(uint64(1)), Vote: new(uint64(0)), Commit: new(uint64(1)),
		}))
		c.members[id] = p
		c.start(p)
	}
	return c
}

func url(id uint64) string { return fmt.Sprintf("http://%d", id) }

func (c *cluster) check(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// join adds a process for a member that has no data yet.
func (c *cluster) join(id uint64) {
	p := &peer{id: id, log: raft.NewMemoryStorage()}
	c.members[id] = p
	c.start(p)
}

// start starts a new incarnation of a member from the contents of its disk.
func (c *cluster) start(p *peer) {
	c.t.Helper()
	m := fsm.New(fsm.Config{})
	if p.disk.meta != nil {
		m = p.disk.decode(c.t)
	}
	p.incarnation++
	p.began = c.now
	r, err := New(Config{
		ID: p.id, FirstSeq: p.id*1_000_000 + p.incarnation*10_000, Log: p.log, Machine: m,
		ElectionTicks: 10, HeartbeatTicks: 1, MaxBatch: 1 << 20, MaxExpire: 4,
		Membership: Membership{Strict: true, Stable: 500, MaxLearners: 1, MaxLag: 5},
		Logger:     discard,
		Silence:    c.silence,
	})
	c.check(err)
	p.r, p.down, p.was, p.slow = r, false, role{}, nil
	p.r.Advance(c.now)
}

// kill stops a member's current incarnation. Unsynced data is lost.
func (c *cluster) kill(p *peer) {
	p.down, p.appends, p.inbox, p.stuck, p.invalidations = true, nil, nil, false, nil
	c.open = slices.DeleteFunc(c.open, func(name string) bool {
		return strings.HasPrefix(name, fmt.Sprint(p.id, ":"))
	})
}

func (c *cluster) ids() []uint64 { return slices.Sorted(maps.Keys(c.members)) }

// run runs the cluster until it is idle.
func (c *cluster) run() {
	c.t.Helper()
	for range 10_000 {
		busy := false
		for _, id := range c.ids() {
			busy = c.step(c.members[id]) || busy
		}
		if !busy {
			return
		}
	}
	c.t.Fatal("the cluster does not become idle")
}

// step runs one step of a member, as the shell would.
func (c *cluster) step(p *peer) (busy bool) {
	c.t.Helper()
	if p.down || p.hung {
		return false
	}
	p.r.Advance(c.now)
	if !p.stuck {
		busy = len(p.appends) > 0
		c.persist(p)
	}
	in := p.inbox
	p.inbox = nil
	for _, m := range in {
		busy = true
		c.deliver(p, m)
	}
	out := p.r.Take()
	if p.r.hasNewWork() {
		c.t.Errorf("member %d left work for the next step", p.id)
	}
	c.carry(p, out)
	return busy || len(out.Send)+len(out.Append) > 0 || out.Applied
}

func (c *cluster) deliver(p *peer, m *Message) {
	c.t.Helper()
	if m.Raft.GetType() != raftpb.MsgSnap {
		// the sender has been removed in the meantime
		if err := p.r.Step(m); !errors.Is(err, raft.ErrStepPeerNotFound) {
			c.check(err)
		}
		return
	}
	from := c.members[m.From]
	im := encodeImage(c.t, from.r.Machine(), from.r.ConfState())
	raw := &raftpb.Message{
		Type: m.Raft.Type, From: m.Raft.From, To: m.Raft.To, Term: m.Raft.Term,
		Snapshot: &raftpb.Snapshot{Metadata: im.meta},
	}
	taken, err := p.r.Restore(raw, im.decode(c.t))
	c.check(err)
	c.note("%d: snapshot from %d at %d, taken %v", p.id, from.id, im.meta.GetIndex(), taken)
	if !taken {
		from.r.SnapshotSent(p.id, false)
	}
}

// persist syncs pending writes.
func (c *cluster) persist(p *peer) {
	c.t.Helper()
	batch := p.appends
	p.appends = nil
	for _, a := range batch {
		if s := a.GetSnapshot(); !raft.IsEmptySnap(s) {
			p.disk = encodeImage(c.t, p.r.incoming, s.GetMetadata().GetConfState())
			c.check(p.log.ApplySnapshot(s))
			for _, id := range c.ids() { // the stream ended cleanly
				if o := c.members[id]; !o.down && o.r.Status().Leading {
					o.r.SnapshotSent(p.id, true)
				}
			}
		}
		for _, e := range a.GetEntries() {
			if len(e.GetData()) > 0 {
				p.entries++
			}
		}
		c.check(p.log.Append(a.GetEntries()))
		if a.Term != nil || a.Vote != nil || a.Commit != nil {
			c.check(p.log.SetHardState(&raftpb.HardState{
				Term: a.Term, Vote: a.Vote, Commit: a.Commit,
			}))
		}
		p.r.Persisted(a)
	}
}

// carry processes the outputs of a step.
func (c *cluster) carry(p *peer, out Output) {
	c.t.Helper()
	p.appends = append(p.appends, out.Append...)
	c.askAround(p, &out)
	for _, m := range out.Send {
		c.send(m)
	}
	if out.Failed != nil {
		p.failed = out.Failed
		c.kill(p)
	}
	if out.Hash != nil {
		h, err := out.Hash.Hash()
		c.check(err)
		p.r.ReportHash(out.Hash, h, nil)
	}
	if out.Restored {
		c.note("%d: restored at %d", p.id, p.r.Machine().Index())
	}
	for _, q := range out.Proposals {
		if q.origin.Member != 0 {
			c.t.Errorf("member %d answered a command of member %d", p.id, q.origin.Member)
		}
		if q.Owner != nil { // if it has no owner, no test is waiting for it
			c.answer(q.Owner.(string), outcome(q))
		}
	}
	for _, q := range out.Reads {
		text := "ok"
		if q.Err != nil {
			text = q.Err.Error()
		} else if q.Fill != nil {
			text = fmt.Sprintf("cached in term %d", q.Fill.Term)
		} else if len(q.Left) > 0 {
			text = fmt.Sprintf("found %v, remaining %d", q.Left[0].Found, q.Left[0].TTL)
		}
		c.answer(q.Owner.(string), text)
	}
	for _, o := range out.Opened {
		text := fmt.Sprintf("open in term %d", o.Term)
		if o.Err != nil {
			text = o.Err.Error()
		}
		c.answer(o.Owner.(string), text)
	}
	p.invalidations = append(p.invalidations, out.Invalidations...)
	p.were = append(p.were, out.WereSlow...)
	p.forwarded = append(p.forwarded, out.Forwarded...)
	if out.SlowNews {
		p.slow = p.r.SlowCaches()
	}
	for i := range out.Renewals {
		n := &out.Renewals[i]
		text := fmt.Sprintf("ttl %d", n.TTL)
		if n.Err != nil {
			text = n.Err.Error()
		}
		c.answer(nameOf(n), text)
	}
	c.answerTogether(out)
	if now := p.r.role; now.primary && !p.was.primary {
		c.note("%d: primary in term %d", p.id, now.term)
	} else if p.was.leading && !now.leading {
		c.note("%d: leads no more", p.id)
	}
	p.was = p.r.role
	if out.Removed && !p.removed {
		p.removed = true
		c.note("%d: removed", p.id)
	}
}

func outcome(q *Proposal) string {
	switch {
	case q.Err != nil:
		return q.Err.Error()
	case q.Result.Err != nil:
		return q.Result.Err.Error()
	default:
		return fmt.Sprintf("revision %d", q.Result.Revision)
	}
}

// send encodes a message and puts it on its link.
func (c *cluster) send(m *Message) {
	c.t.Helper()
	if m.From == m.To || m.To == 0 {
		c.t.Errorf("member %d sent a message to %d", m.From, m.To)
	}
	data := m.AppendTo(nil)
	if m.Raft.GetType() != raftpb.MsgSnap && len(data) > m.Size() {
		c.t.Errorf("%d bytes, Size returns %d", len(data), m.Size())
	}
	d, err := DecodeMessage(m.From, m.To, data)
	clear(data)
	c.check(err)
	c.sent[kind(m)]++
	on := link2{m.From, m.To}
	if c.cut[on] || c.lose != nil && c.lose(d) {
		return
	}
	if _, ok := c.held[on]; ok {
		c.held[on] = append(c.held[on], d)
		return
	}
	c.arrive(d)
	if c.twice[on] {
		c.arrive(d)
	}
}

func kind(m *Message) string {
	switch {
	case m.Forward != nil:
		return "forward"
	case m.Reply != nil:
		return "reply"
	default:
		return m.Raft.GetType().String()
	}
}

func (c *cluster) arrive(m *Message) {
	if p := c.members[m.To]; p != nil && !p.down {
		p.inbox = append(p.inbox, m)
	}
}

func (c *cluster) note(format string, args ...any) {
	c.events = append(c.events, fmt.Sprintf(format, args...))
}

// answer records the outcome of the named request. It reports a second outcome as an error.
func (c *cluster) answer(name, text string) {
	c.t.Helper()
	if old, ok := c.asks[name]; ok {
		c.t.Errorf("%s was answered %q and then %q", name, old, text)
	}
	c.asks[name] = text
	c.open = slices.DeleteFunc(c.open, func(o string) bool { return o == name })
	c.note("%s -> %s", name, text)
}

// ask returns a unique name for a client's request to a member.
func (c *cluster) ask(p *peer, words ...string) string {
	name := fmt.Sprintf("%d: %s", p.id, strings.Join(words, " "))
	for n := 2; c.asks[name] != "" || slices.Contains(c.open, name); n++ {
		name = fmt.Sprintf("%d: %s (%d)", p.id, strings.Join(words, " "), n)
	}
	c.open = append(c.open, name)
	return name
}

func (c *cluster) propose(p *peer, cmd fsm.Command, words ...string) {
	p.r.Advance(c.now)
	p.r.Propose(&Proposal{Command: cmd, Owner: c.ask(p, words...)})
}

func (c *cluster) renew(p *peer, id lease.ID) {
	p.r.Advance(c.now)
	p.r.Renew(Renewal{ID: id, Owner: c.ask(p, "renew", fmt.Sprint(id))})
}

func (c *cluster) read(p *peer, id lease.ID) {
	p.r.Advance(c.now)
	words := []string{"read"}
	if id != 0 {
		words = []string{"remaining", fmt.Sprint(id)}
	}
	q := &Read{Owner: c.ask(p, words...)}
	if id != 0 {
		q.Leases = []lease.ID{id}
	}
	p.r.Read(q)
}

// pass advances time for all running members, with a tick every 100 ms.
func (c *cluster) pass(d lease.Instant) {
	c.t.Helper()
	for end := c.now + d; c.now < end; {
		next := min(end, (c.now/100+1)*100)
		for _, id := range c.ids() {
			if p := c.members[id]; !p.down && !p.hung {
				if at, ok := p.r.Next(); ok {
					next = min(next, max(at, c.now+1))
				}
			}
		}
		c.now = next
		for _, id := range c.ids() {
			p := c.members[id]
			if p.down || p.hung {
				continue
			}
			p.r.Advance(c.now)
			if c.now%100 == 0 {
				p.r.Tick()
				c.connect(p)
			}
		}
		c.run()
	}
}

// Like the shell, connect tells a member when each of its current connections began.
func (c *cluster) connect(p *peer) {
	for _, id := range c.ids() {
		o := c.members[id]
		if id != p.id && !o.down && !c.cut[link2{p.id, id}] && !c.cut[link2{id, p.id}] {
			p.r.Connected(id, max(p.began, o.began))
		}
	}
}

// state describes each member's keys and leases. It checks that members at the same index have the
// same state (S3), and that Raft's voters match the voters in the state.
func (c *cluster) state() string {
	c.t.Helper()
	hashes := make(map[uint64]uint32) // by index
	var b strings.Builder
	for _, id := range c.ids() {
		p := c.members[id]
		if p.down {
			fmt.Fprintf(&b, "%d: down\n", id)
			continue
		}
		m := p.r.Machine()
		h, err := m.Image().Hash()
		c.check(err)
		if old, ok := hashes[m.Index()]; ok && old != h {
			c.t.Errorf("members differ at index %d", m.Index())
		}
		hashes[m.Index()] = h
		var voters, learners []uint64
		for _, n := range m.View().Members {
			if n.Learner {
				learners = append(learners, n.ID)
			} else {
				voters = append(voters, n.ID)
			}
		}
		conf := p.r.ConfState()
		if !slices.Equal(conf.GetVoters(), voters) || !slices.Equal(conf.GetLearners(), learners) {
			c.t.Errorf("member %d has voters %v and learners %v, and Raft %v", id, voters, learners, conf)
		}
		fmt.Fprintf(&b, "%d:", id)
		for kv := range m.View().KV.Ascend("", "\x00", 0) {
			fmt.Fprintf(&b, " %s=%s", kv.Key, kv.Value)
			if kv.Version > 1 {
				fmt.Fprintf(&b, " (version %d)", kv.Version)
			}
		}
		for l := range m.Lessor().Leases() {
			fmt.Fprintf(&b, " lease %d", l.ID)
			if l.Remaining != 0 {
				fmt.Fprintf(&b, " (checkpointed)")
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}
