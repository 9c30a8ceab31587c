package server

import (
	"context"
	"math"
	"sync"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/replica"
	"leasehold.dev/internal/shell"
	"leasehold.dev/internal/trace"
)

// places note when indexes of the log came where. The core has all but synced, which the writer
// of the log writes.
type places struct {
	appended, committed, applied place
	worked                       span // the core's last work
	leads                        bool

	written uint64 // the last index that was written; the writer's

	mu     sync.Mutex
	synced place
}

// span is from when to when something was done, since epoch.
type span struct{ from, to int64 }

// place is when indexes came to one place, the newest ones. All up to an index came there
// with it.
type place struct {
	marks [1024]mark
	n     int // of all that there were
}

type mark struct {
	index uint64
	span
}

// note notes that an index has come.
func (p *place) note(index uint64, s span) {
	if p.n > 0 && p.marks[(p.n-1)%len(p.marks)].index == index {
		return
	}
	p.marks[p.n%len(p.marks)] = mark{index, s}
	p.n++
}

// of returns when an index came, after some instant; zeros if that is not known. Where another
// leader has written other entries over it, the last time counts.
func (p *place) of(index uint64, after int64) (s span) {
	last := uint64(math.MaxUint64)
	for n := p.n - 1; n >= max(p.n-len(p.marks), 0); n-- {
		m := &p.marks[n%len(p.marks)]
		if m.index < index || m.index > last || m.to < after {
			return s
		}
		s, last = m.span, m.index
	}
	if p.n > len(p.marks) {
		return span{} // it may have come before the oldest that is known
	}
	return s
}

// appending notes what the core gives to the writer.
func (t *tracer) appending(messages []*raftpb.Message) {
	if t == nil {
		return
	}
	now := sinceEpoch()
	for _, m := range messages {
		if n := len(m.GetEntries()); n > 0 {
			t.log.appended.note(m.GetEntries()[n-1].GetIndex(), span{now, now})
		}
	}
}

// wrote notes what the writer has written, from begin on, and perhaps synced.
func (t *tracer) wrote(x *shell.Saving, begin time.Time) {
	if t == nil {
		return
	}
	if n := len(x.Entries); n > 0 {
		t.log.written = x.Entries[n-1].GetIndex()
	}
	if x.Sync {
		t.log.mu.Lock()
		t.log.synced.note(t.log.written, span{int64(begin.Sub(epoch)), sinceEpoch()})
		t.log.mu.Unlock()
	}
}

// worked notes when the core began to work, and that it is done.
func (t *tracer) worked(begin time.Time) {
	if t != nil {
		t.log.worked = span{int64(begin.Sub(epoch)), sinceEpoch()}
	}
}

// follow notes what the work has brought about.
func (t *tracer) follow(s *replica.Status) {
	if t != nil {
		t.log.committed.note(s.Index, span{t.log.worked.from, t.log.worked.from})
		t.log.applied.note(s.Applied, span{t.log.worked.to, t.log.worked.to})
		t.log.leads = s.Leading
	}
}

// stages are the instants of what a request of the core has waited for, since epoch; 0 where that
// is not known. The core sets all but asked.
type stages struct {
	call     *tracedCall
	asked    int64
	answered int64
	leads    bool
	index    uint64 // of its entry
	waited   int64  // for caches, in milliseconds

	appended, committed, applied int64
	synced                       span
}

// ask returns the stages of a request that is made of the core now, for a call; nil for a call that
// is not traced.
func (t *tracer) ask(ctx context.Context) *stages {
	if t == nil {
		return nil
	}
	call, _ := ctx.Value(tracedKey{}).(*tracedCall)
	return call.ask()
}

func (c *tracedCall) ask() *stages {
	if c == nil {
		return nil
	}
	c.tracer.latest.Store(c)
	return &stages{call: c, asked: sinceEpoch()}
}

// of notes that the core has answered a command, or a read, which has no index.
func (s *stages) of(p *replica.Proposal) {
	log := &s.call.tracer.log
	s.answered, s.leads = sinceEpoch(), log.leads
	if s.index, s.waited = p.Index, int64(p.Waited); s.index == 0 {
		return
	}
	s.appended = log.appended.of(s.index, s.asked).to
	if s.committed = log.committed.of(s.index, s.asked).to; s.committed != 0 {
		s.committed = max(s.committed, s.appended) // a message may bring an entry and say that it is
	}
	s.applied = log.applied.of(s.index, s.asked).to
	log.mu.Lock()
	s.synced = log.synced.of(s.index, s.asked)
	log.mu.Unlock()
}

// close makes spans of the stages. The core must have answered, or else: if nobody waits for its
// answer any more, lost says so, and what the core may still set is not read.
func (s *stages) close(command, lost bool) {
	if s == nil {
		return
	}
	c := s.call
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tracer.latest.CompareAndSwap(c, nil)
	switch {
	case c.over:
	case lost:
		c.part("given up", s.asked, sinceEpoch())
	case !command:
		c.last = s.answered
		c.part("confirm", s.asked, s.answered, ofLeader(s.leads))
	case s.index == 0:
		c.last = s.answered
		c.part("refused", s.asked, s.answered, ofLeader(s.leads))
	default:
		c.last = s.applied
		s.closeCommand(c)
	}
}

func (s *stages) closeCommand(c *tracedCall) {
	way := "forward"
	if s.leads {
		way = "admission"
	}
	more := []trace.Attribute{ofLeader(s.leads)}
	if s.waited > 0 {
		more = append(more, trace.Attribute{Key: "leasehold.cache_wait_ms", Value: s.waited})
	}
	c.part(way, s.asked, s.appended, more...)
	c.part("commit", s.appended, s.committed,
		trace.Attribute{Key: "leasehold.index", Value: int64(s.index)})
	c.part("log sync", s.synced.from, s.synced.to)
	c.part("apply", s.committed, s.applied)
}

func ofLeader(leads bool) trace.Attribute {
	return trace.Attribute{Key: "leasehold.leader", Value: leads}
}
