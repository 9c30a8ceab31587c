package server

import (
	"math"
	"sync"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/replica"
	"leasehold.dev/internal/shell"
	"leasehold.dev/lease"
)

// places note when indexes of the log got where. All instants are nanoseconds since epoch. The core
// writes all but synced, which belongs to the writer of the log.
type places struct {
	appended, committed, applied place
	worked                       span          // the core's last work
	now                          lease.Instant // when that began
	leads                        bool

	written uint64 // the last index that was written; the writer's

	mu     sync.Mutex // guards synced
	synced place
}

// span is from when to when something was done.
type span struct{ from, to int64 }

// place is when the newest indexes got to one place. All indexes up to a mark's got there with it.
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

// of returns when an index came, after some instant; zeros if that is not known. If another leader
// has overwritten the entry, the last time counts.
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

// done returns when the core's last work was done.
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
		t.log.leads = s.Leading
	}
}

// instant converts an instant of the replica's clock. Only the core may call it.
func (p *places) instant(at lease.Instant) int64 {
	return p.worked.from - int64(p.now-at)*int64(time.Millisecond)
}

// entryTimes is when an entry got where; 0 where that is not known.
type entryTimes struct {
	appended, committed, applied int64
	synced                       span
}

// times returns when an entry got where, after some instant. Only the core may call it.
func (p *places) times(index uint64, after int64) (s entryTimes) {
	s.appended = p.appended.of(index, after).to
	if s.committed = p.committed.of(index, after).to; s.committed != 0 {
		s.committed = max(s.committed, s.appended) // one message may bring and commit an entry
	}
	s.applied = p.applied.of(index, after).to
	p.mu.Lock()
	s.synced = p.synced.of(index, after)
	p.mu.Unlock()
	return s
}

// stages are the instants of a request to the core, for the call that makes it. The core sets all
// but call and asked; an instant is 0 if it is not known.
type stages struct {
	call     *tracedCall // nil if the call is not timed, or not yet
	asked    int64
	answered int64
	known    bool // what follows is set: the call is traced, or the answer was not fast
	leads    bool
	index    uint64 // of its entry
	wait     replica.CacheWait
	through  int64 // when the wait for caches ended
	entryTimes
}

// now returns sinceEpoch if anything is timed.
func (t *tracer) now() int64 {
	if t == nil {
		return 0
	}
	return sinceEpoch()
}

// of notes the core's answer to a command, or to a read, which has no index.
func (s *stages) of(p *replica.Proposal, now int64) {
	t := s.call.tracer
	s.answered, s.leads = now, t.log.leads
	if s.known = s.call.traced || t.slow.mayBe(now-s.asked); !s.known {
		return
	}
	if s.index, s.wait = p.Index, p.Wait; s.index != 0 {
		s.entryTimes, s.through = t.log.times(s.index, s.asked), t.log.instant(p.Wait.Until)
	}
}

// close adds the stages to their call. If the call has given up waiting, lost says so, and what the
// core may still set is not read.
func (s *stages) close(command, lost bool) {
	c := s.call
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return
	}
	if c.first == 0 {
		c.first = s.asked
	}
	if lost {
		now := sinceEpoch()
		c.answered = false
		c.asking += now - s.asked
		c.part(noAnswer, s.asked, now)
		return
	}
	c.asking += s.answered - s.asked
	c.answered, c.leads = true, s.leads
	switch {
	case !s.known:
	case !command:
		c.part(confirm, s.asked, s.answered)
	case s.index == 0: // it was refused
		c.part(queued, s.asked, s.answered)
	default:
		s.closeCommand(c)
	}
}

func (s *stages) closeCommand(c *tracedCall) {
	if s.leads {
		c.part(queued, s.asked, s.appended)
	} else {
		c.part(forward, s.asked, s.appended)
	}
	if s.wait.For > 0 {
		end := max(s.through, s.asked) // the replica's clock has milliseconds
		if s.appended != 0 {
			end = min(end, s.appended)
		}
		c.part(cacheWait, s.asked, end, waitAttributes(s.wait)...)
	}
	c.part(commit, s.appended, s.committed)
	c.part(logSync, s.synced.from, s.synced.to)
	c.part(apply, s.committed, s.applied)
}
