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

// places records when log indexes reached each stage. All instants are in nanoseconds since epoch.
// The core writes all fields except synced and written, which belong to the writer of the log.
type places struct {
	appended, committed, applied place
	worked                       span          // latest step of the core
	now                          lease.Instant // replica's clock at the beginning of that step
	leads                        bool

	written uint64 // last index written; used only by the log writer

	mu     sync.Mutex // guards synced
	synced place
}

// epoch is earlier than any timed event.
var epoch = time.Now().Add(-time.Nanosecond)

func sinceEpoch() int64 { return int64(time.Since(epoch)) }

// span is an interval.
type span struct{ from, to int64 }

// place records when indexes reached one stage. Each mark covers all indexes up to its own.
type place struct {
	marks [1024]mark
	n     int // number of marks so far
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

// of returns when, after the given instant, an index reached the stage, or zeros if that is
// unknown. If another leader has overwritten the entry, the latest time counts.
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
		return span{} // the index might have arrived before the oldest mark
	}
	return s
}

// Appending records which entries the core is passing to the log writer, and when.
func (t *Tracer) Appending(messages []*raftpb.Message) {
	if t == nil {
		return
	}
	now := t.log.worked.to // recent enough
	for _, m := range messages {
		if n := len(m.GetEntries()); n > 0 {
			t.log.appended.note(m.GetEntries()[n-1].GetIndex(), span{now, now})
		}
	}
}

// Wrote records which entries the log writer has written, and when.
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

// Worked records a step of the core: when it began, by both clocks, and how long it took.
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

// instant converts an instant of the replica's clock. It must be called only by the core.
func (p *places) instant(at lease.Instant) int64 {
	return p.worked.from - int64(p.now-at)*int64(time.Millisecond)
}

// entryTimes records when an entry reached each stage. A time of 0 means unknown.
type entryTimes struct {
	appended, committed, applied int64
	synced                       span
}

// times returns when, after the given instant, an entry reached each stage. It must be called only
// by the core.
func (p *places) times(index uint64, after int64) (s entryTimes) {
	s.appended = p.appended.of(index, after).to
	if s.committed = p.committed.of(index, after).to; s.committed != 0 {
		// a single message can deliver and commit an entry
		s.committed = max(s.committed, s.appended)
	}
	s.applied = p.applied.of(index, after).to
	p.mu.Lock()
	s.synced = p.synced.of(index, after)
	p.mu.Unlock()
	return s
}

// Stages records when a request to the core reached each stage, for the call that makes the
// request. The core sets all fields except call and requested. A value of 0 means unknown.
type Stages struct {
	call      *Call // nil if the call is not timed, or is not known yet
	requested int64
	answered  int64
	// whether the fields below are set, because the call is traced or the answer was not fast
	known   bool
	leads   bool
	index   uint64 // index of the request's entry
	wait    replica.CacheWait
	through int64 // when the wait for caches ended
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

// Answered records the core's answer to a command or to a read. A read has no index.
func (s *Stages) Answered(p *replica.Proposal, now int64) {
	if s.call == nil {
		return
	}
	t := s.call.tracer
	s.answered, s.leads = now, t.log.leads
	if s.known = s.call.traced || t.slow.mayBeSlow(now-s.requested); !s.known {
		return
	}
	if s.index, s.wait = p.Index, p.Wait; s.index != 0 {
		s.entryTimes, s.through = t.log.times(s.index, s.requested), t.log.instant(p.Wait.Until)
	}
}

// Close adds the stages to their call. If lost is true, the caller has stopped waiting. In that
// case, Close does not read the fields that the core might still write.
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
	case s.index == 0: // the command was rejected
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
		end := max(s.through, s.requested) // the replica's clock counts milliseconds
		if s.appended != 0 {
			end = min(end, s.appended)
		}
		c.part(cacheWait, s.requested, end, waitAttributes(s.wait)...)
	}
	c.part(commit, s.appended, s.committed)
	c.part(logSync, s.synced.from, s.synced.to)
	c.part(apply, s.committed, s.applied)
}

// Requested returns the stages of a stream's request. The request's trace can be nil. The argument
// requested is the result of Now when the request was made.
func Requested(of native.Traced, requested int64) Stages {
	s := Stages{requested: requested}
	if of != nil {
		s.call = of.(*Call)
	}
	return s
}

// EndRequest records the answer to a stream's request. If the request has no trace but was slow, it
// is logged.
func (t *Tracer) EndRequest(s *Stages, p *replica.Proposal, to native.Answered, now int64) {
	if s.call == nil {
		if s.requested == 0 || !t.slow.mayBeSlow(now-s.requested) {
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
