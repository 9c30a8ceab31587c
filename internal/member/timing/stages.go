package timing

import (
	"math"
	"sync"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/api/native"
	"leasehold.dev/internal/replica"
	"leasehold.dev/internal/shell"
	"leasehold.dev/lease"
)

// places records when log indexes reached each stage. All instants are nanoseconds since epoch. The
// core writes everything but synced, which belongs to the writer of the log.
type places struct {
	appended, committed, applied place
	worked                       span          // the core's latest step
	now                          lease.Instant // the replica's clock at its beginning
	leads                        bool

	written uint64 // the last index written; belongs to the writer

	mu     sync.Mutex // guards synced
	synced place
}

// epoch is before any timed event.
var epoch = time.Now().Add(-time.Nanosecond)

func sinceEpoch() int64 { return int64(time.Since(epoch)) }

// span is an interval.
type span struct{ from, to int64 }

// place records when one stage was reached. A mark covers all indexes up to its own.
type place struct {
	marks [1024]mark
	n     int // number of marks made so far
}

type mark struct {
	index uint64
	span
}

// note adds a mark.
func (p *place) note(index uint64, s span) {
	if p.n > 0 && p.marks[(p.n-1)%len(p.marks)].index == index {
		return
	}
	p.marks[p.n%len(p.marks)] = mark{index, s}
	p.n++
}

// of returns when an index arrived after the given instant, or zeros if that is unknown. If another
// leader has overwritten the entry, its latest arrival counts.
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
		return span{} // it may have arrived before the oldest mark
	}
	return s
}

// Appending records the entries that the core passes to the writer.
func (t *Tracer) Appending(messages []*raftpb.Message) {
	if t == nil {
		return
	}
	now := t.log.worked.to // very recent
	for _, m := range messages {
		if n := len(m.GetEntries()); n > 0 {
			t.log.appended.note(m.GetEntries()[n-1].GetIndex(), span{now, now})
		}
	}
}

// Wrote records which entries the writer has written, and when.
func (t *Tracer) Wrote(x *shell.Saving, begin time.Time, took time.Duration) {
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

// Worked records a step of the core: its beginning, also by the replica's clock, and its duration.
func (t *Tracer) Worked(begin time.Time, took time.Duration, now lease.Instant) {
	if t != nil {
		from := int64(begin.Sub(epoch))
		t.log.worked, t.log.now = span{from, from + int64(took)}, now
	}
}

// Done returns when the core's latest step ended.
func (t *Tracer) Done() int64 {
	if t == nil {
		return 0
	}
	return t.log.worked.to
}

// Follow records the result of a step.
func (t *Tracer) Follow(s *replica.Status) {
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

// entryTimes is when an entry reached each stage; 0 if unknown.
type entryTimes struct {
	appended, committed, applied int64
	synced                       span
}

// times returns when an entry reached each stage, after a given instant. Only the core may call it.
func (p *places) times(index uint64, after int64) (s entryTimes) {
	s.appended = p.appended.of(index, after).to
	if s.committed = p.committed.of(index, after).to; s.committed != 0 {
		s.committed = max(s.committed, s.appended) // one message may deliver and commit an entry
	}
	s.applied = p.applied.of(index, after).to
	p.mu.Lock()
	s.synced = p.synced.of(index, after)
	p.mu.Unlock()
	return s
}

// Stages holds the instants of a request to the core, for the call that makes it. The core sets all
// fields but call and requested. 0 means unknown.
type Stages struct {
	call      *Call // nil if the call is not timed, or not yet known
	requested int64
	answered  int64
	known     bool // the fields below are set: the call is traced, or the answer was not fast
	leads     bool
	index     uint64 // of its entry
	wait      replica.CacheWait
	through   int64 // end of the wait for caches
	entryTimes
}

// Now returns the time since epoch, or 0 if nothing is timed.
func (t *Tracer) Now() int64 {
	if t == nil {
		return 0
	}
	return sinceEpoch()
}

// Timed reports whether a call is timed.
func (s *Stages) Timed() bool { return s.call != nil }

// Answered records the core's answer to a command, or to a read, which has no index.
func (s *Stages) Answered(p *replica.Proposal, now int64) {
	if s.call == nil {
		return
	}
	t := s.call.tracer
	s.answered, s.leads = now, t.log.leads
	if s.known = s.call.traced || t.slow.mayBe(now-s.requested); !s.known {
		return
	}
	if s.index, s.wait = p.Index, p.Wait; s.index != 0 {
		s.entryTimes, s.through = t.log.times(s.index, s.requested), t.log.instant(p.Wait.Until)
	}
}

// Close adds the stages to their call. If lost is set, the caller has stopped waiting, and Close
// does not read the fields that the core may still write.
func (s *Stages) Close(command, lost bool) {
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
		c.first = s.requested
	}
	if lost {
		now := sinceEpoch()
		c.answered = false
		c.asking += now - s.requested
		c.part(noAnswer, s.requested, now)
		return
	}
	c.asking += s.answered - s.requested
	c.answered, c.leads = true, s.leads
	switch {
	case !s.known:
	case !command:
		c.part(confirm, s.requested, s.answered)
	case s.index == 0: // it was refused
		c.part(queued, s.requested, s.answered)
	default:
		s.closeCommand(c)
	}
}

func (s *Stages) closeCommand(c *Call) {
	if s.leads {
		c.part(queued, s.requested, s.appended)
	} else {
		c.part(forward, s.requested, s.appended)
	}
	if s.wait.For > 0 {
		end := max(s.through, s.requested) // the replica's clock is in milliseconds
		if s.appended != 0 {
			end = min(end, s.appended)
		}
		c.part(cacheWait, s.requested, end, waitAttributes(s.wait)...)
	}
	c.part(commit, s.appended, s.committed)
	c.part(logSync, s.synced.from, s.synced.to)
	c.part(apply, s.committed, s.applied)
}

// Requested returns the stages of a stream's request, whose trace may be nil. requested is the
// value of Now when it was made.
func Requested(of native.Traced, requested int64) Stages {
	s := Stages{requested: requested}
	if of != nil {
		s.call = of.(*Call)
	}
	return s
}

// EndRequest records the answer to a stream's request. A slow request without a trace is logged.
func (t *Tracer) EndRequest(s *Stages, p *replica.Proposal, to native.Answered, now int64) {
	if s.call == nil {
		if s.requested == 0 || !t.slow.mayBe(now-s.requested) {
			return
		}
		late, ok := to.(native.Late)
		if !ok {
			return
		}
		s.call = &Call{tracer: t, begun: s.requested}
		defer late.Late(s.call)
	}
	s.Answered(p, now)
	s.Close(p.Command != nil, false)
}
