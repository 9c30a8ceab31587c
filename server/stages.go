package server

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/replica"
	"leasehold.dev/internal/shell"
	"leasehold.dev/internal/trace"
	"leasehold.dev/lease"
)

// places note when indexes of the log came where. The core has all but synced, which the writer
// of the log writes.
type places struct {
	appended, committed, applied place
	worked                       span          // the core's last work
	now                          lease.Instant // when that began
	leads                        bool
	leader                       uint64
	forwarded                    []tracedEntry           // not applied yet, of other members' calls
	waits                        []replica.ForwardedWait // the newest ones

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

// last returns the newest index.
func (p *place) last() uint64 {
	if p.n == 0 {
		return 0
	}
	return p.marks[(p.n-1)%len(p.marks)].index
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
	now := t.log.worked.to // a moment ago
	for _, m := range messages {
		if n := len(m.GetEntries()); n > 0 {
			t.log.appended.note(m.GetEntries()[n-1].GetIndex(), span{now, now})
		}
	}
}

// wrote notes what the writer has written, from begin on, and how long it took.
func (t *tracer) wrote(x *shell.Saving, begin time.Time, took time.Duration) {
	if t == nil {
		return
	}
	if n := len(x.Entries); n > 0 {
		t.log.written = x.Entries[n-1].GetIndex()
	}
	t.log.mu.Lock()
	from := int64(begin.Sub(epoch))
	t.log.synced.note(t.log.written, span{from, from + int64(took)})
	t.log.mu.Unlock()
}

// worked notes when the core began to work, also by the replica's clock, and how long it took.
func (t *tracer) worked(begin time.Time, took time.Duration, now lease.Instant) {
	if t != nil {
		from := int64(begin.Sub(epoch))
		t.log.worked, t.log.now = span{from, from + int64(took)}, now
	}
}

// instant returns one of the replica's clock as one since epoch. The core alone calls it.
func (p *places) instant(at lease.Instant) int64 {
	return p.worked.from - int64(p.now-at)*int64(time.Millisecond)
}

// done is when the core's last work was done, since epoch, if somebody wants to know it.
func (t *tracer) done() int64 {
	if t == nil {
		return 0
	}
	return t.log.worked.to
}

// follow notes what the work has brought about.
func (t *tracer) follow(s *replica.Status) {
	if t != nil {
		t.log.committed.note(s.Index, span{t.log.worked.from, t.log.worked.from})
		t.log.applied.note(s.Applied, span{t.log.worked.to, t.log.worked.to})
		t.log.leads, t.log.leader = s.Leading, s.Leader
		t.leadAgain()
	}
}

// entryTimes is when an entry came where, since epoch; 0 where that is not known.
type entryTimes struct {
	appended, committed, applied int64
	synced                       span
}

// times returns when an entry came where, after some instant. The core alone calls it.
func (p *places) times(index uint64, after int64) (s entryTimes) {
	s.appended = p.appended.of(index, after).to
	if s.committed = p.committed.of(index, after).to; s.committed != 0 {
		s.committed = max(s.committed, s.appended) // a message may bring an entry and say that it is
	}
	s.applied = p.applied.of(index, after).to
	p.mu.Lock()
	s.synced = p.synced.of(index, after)
	p.mu.Unlock()
	return s
}

// stages are the instants of what a request of the core has waited for, since epoch; 0 where that
// is not known. The core sets all but call and asked.
type stages struct {
	call     *tracedCall // nil if nothing is to be known of the call, or not yet
	asked    int64
	answered int64
	known    bool // what follows, otherwise the core has answered fast
	leads    bool
	index    uint64 // of its entry
	wait     replica.CacheWait
	through  int64 // until when it waited for caches
	entryTimes
	// to is the leader if the command was forwarded, under a number.
	to, number uint64
}

// now is sinceEpoch, if somebody wants to know it.
func (t *tracer) now() int64 {
	if t == nil {
		return 0
	}
	return sinceEpoch()
}

// ask returns the stages of a request that is made of the core now, for a call.
func (t *tracer) ask(ctx context.Context) stages {
	if t == nil {
		return stages{}
	}
	call, _ := ctx.Value(tracedKey{}).(*tracedCall)
	if call == nil {
		return stages{}
	}
	return call.ask(sinceEpoch())
}

func (c *tracedCall) ask(now int64) stages {
	if c.spans != nil {
		c.tracer.latest.Store(c)
	}
	return stages{call: c, asked: now}
}

// of notes that the core has answered a command, or a read, which has no index.
func (s *stages) of(p *replica.Proposal, now int64) {
	t := s.call.tracer
	s.answered, s.leads = now, t.log.leads
	if s.known = s.call.spans != nil || t.slow.mayBe(now-s.asked); !s.known {
		return
	}
	if s.index, s.wait = p.Index, p.Wait; s.index != 0 {
		s.entryTimes, s.through = t.log.times(s.index, s.asked), t.log.instant(p.Wait.Until)
		s.to, s.number = t.log.leader, p.Number
	}
}

// close tells the call of the stages. The core must have answered, or else: if nobody waits for its
// answer any more, lost says so, and what the core may still set is not read.
func (s *stages) close(command, lost bool) {
	c := s.call
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.spans != nil {
		c.tracer.latest.CompareAndSwap(c, nil)
	}
	if c.over {
		return
	}
	if c.first == 0 {
		c.first = s.asked
	}
	if lost {
		now := sinceEpoch()
		c.part(givenUp, s.asked, now)
		c.asking += now - s.asked
		return
	}
	c.last, c.leads = s.answered, s.leads
	c.asking += s.answered - s.asked
	switch {
	case !s.known:
	case !command:
		c.part(confirm, s.asked, s.answered, ofLeader(s.leads))
	case s.index == 0:
		c.part(refused, s.asked, s.answered, ofLeader(s.leads))
	default:
		c.last = s.applied
		s.closeCommand(c)
	}
}

func (s *stages) closeCommand(c *tracedCall) {
	way := forward
	if s.leads {
		way = admission
	}
	c.part(way, s.asked, s.appended, ofLeader(s.leads))
	if s.wait.For > 0 {
		s.closeWait(c)
	}
	c.part(commit, s.appended, s.committed,
		trace.Attribute{Key: "leasehold.index", Value: int64(s.index)})
	c.part(logSync, s.synced.from, s.synced.to)
	c.part(apply, s.committed, s.applied)
	if c.spans != nil && s.number != 0 && s.to != 0 {
		c.tracer.notes.add(tracedEntry{
			member: s.to, trace: c.spans.call.Trace, parent: c.spans.call.ID, state: c.spans.call.State,
			index: s.index, number: s.number,
		})
	}
}

// closeWait tells of a wait for caches. The replica's clock has milliseconds.
func (s *stages) closeWait(c *tracedCall) {
	more := []trace.Attribute{{Key: "leasehold.cache_drops", Value: int64(s.wait.Drops)}}
	if s.wait.Last != 0 {
		more = append(more, trace.Attribute{
			Key: "leasehold.last_lease", Value: fmt.Sprintf("%016x", uint64(s.wait.Last)),
		})
	}
	to := max(s.through, s.asked)
	if s.appended != 0 {
		to = min(to, s.appended)
	}
	c.part(cacheWait, s.asked, to, more...)
}

func ofLeader(leads bool) trace.Attribute {
	return trace.Attribute{Key: "leasehold.leader", Value: leads}
}
