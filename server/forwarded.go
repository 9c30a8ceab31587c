package server

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"leasehold.dev/internal/encoding"
	"leasehold.dev/internal/replica"
	"leasehold.dev/internal/trace"
	"leasehold.dev/internal/transport"
)

// A command that was forwarded has spans at the leader, too. The follower knows the trace, and the
// leader the instants, whether it is asked for them or not. So messages have nothing of traces:
// when the call has its answer, the follower tells the leader in a note which entry it was of.

// tracedEntry is an entry of the log with a command of a sampled call.
type tracedEntry struct {
	member uint64 // the leader at the follower, the follower at the leader
	trace  trace.ID
	parent trace.SpanID
	state  string
	index  uint64
	number uint64 // under which the command was forwarded
}

// errTraceNote means that a note is not one of traces.
var errTraceNote = errors.New("server: corrupt note of traces")

var traceNoteFormat = encoding.Format{Name: "note of traces", Version: 1, Corrupt: errTraceNote}

// encodeTraceNote makes a note of some entries.
func encodeTraceNote(list []tracedEntry) []byte {
	return encoding.AppendList([]byte{traceNoteFormat.Version}, list,
		func(b []byte, e tracedEntry) []byte {
			b = append(append(b, e.trace[:]...), e.parent[:]...)
			b = encoding.AppendBytes(b, e.state)
			return binary.AppendUvarint(binary.AppendUvarint(b, e.index), e.number)
		})
}

// decodeTraceNote reads what a member has told in a note.
func decodeTraceNote(from uint64, data []byte) ([]tracedEntry, error) {
	d := traceNoteFormat.Open(data)
	list := encoding.List(&d, func() tracedEntry {
		e := tracedEntry{member: from}
		binary.BigEndian.PutUint64(e.trace[:8], d.Uint64())
		binary.BigEndian.PutUint64(e.trace[8:], d.Uint64())
		binary.BigEndian.PutUint64(e.parent[:], d.Uint64())
		e.state = trace.State([]string{d.Text()})
		e.index, e.number = d.Uvarint(), d.Uvarint()
		return e
	})
	return list, d.End()
}

const (
	// maxTraceNotes bounds the entries of which a leader is yet to be told. More are dropped.
	maxTraceNotes = 1024
	// noteBatch is how many are in one note. An entry takes less than a kilobyte.
	noteBatch = transport.MaxNote >> 10
	// noteLinger is how long an entry waits for others, so that notes cost little. A leader knows the
	// instants of the last thousand entries.
	noteLinger = 20 * time.Millisecond
	// notePatience is how long a leader may take to get a note.
	notePatience = 10 * time.Second
)

// sendNote sends a note to another member.
type sendNote func(ctx context.Context, member uint64, data []byte) error

// traceNotes are what leaders are to be told of.
type traceNotes struct {
	wake chan struct{} // capacity 1: there is something

	mu    sync.Mutex
	queue []tracedEntry
}

func newTraceNotes() traceNotes { return traceNotes{wake: make(chan struct{}, 1)} }

// add lets a leader be told of an entry. It does not wait.
func (n *traceNotes) add(e tracedEntry) {
	n.mu.Lock()
	if len(n.queue) < maxTraceNotes {
		n.queue = append(n.queue, e)
	}
	n.mu.Unlock()
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// take takes the first entries of one leader.
func (n *traceNotes) take() (to uint64, list []tracedEntry) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for len(n.queue) > 0 && len(list) < noteBatch {
		e := n.queue[0]
		if len(list) > 0 && e.member != to {
			break
		}
		to, list, n.queue = e.member, append(list, e), n.queue[1:]
	}
	return to, list
}

// run sends notes until ctx ends.
func (n *traceNotes) run(ctx context.Context, send sendNote) {
	for {
		select {
		case <-n.wake:
		case <-ctx.Done():
			return
		}
		if !pause(ctx, noteLinger) {
			return
		}
		for to, list := n.take(); len(list) > 0; to, list = n.take() {
			n.send(ctx, send, to, list)
		}
	}
}

// send sends a note. A leader that does not get it, for it is gone or of an older release, makes no
// spans of it.
func (n *traceNotes) send(ctx context.Context, send sendNote, to uint64, list []tracedEntry) {
	ctx, cancel := context.WithTimeout(ctx, notePatience)
	defer cancel()
	_ = send(ctx, to, encodeTraceNote(list))
}

// noted takes what another member tells.
func (p *peers) noted(from uint64, data []byte) {
	t := p.core.tracer
	if !t.sends() {
		return
	}
	list, err := decodeTraceNote(from, data)
	if err != nil {
		p.log.Debug("dropped a note of a member", "from", fmt.Sprintf("%x", from), "error", err)
		return
	}
	p.core.inbox.task(func() { t.leadAll(list) })
}

// arrivals note when commands came that other members forwarded, the newest ones.
type arrivals struct {
	mu    sync.Mutex
	marks [1024]forwardMark
	n     int // of all that there were
}

// forwardMark is when a message of a member came, with commands of some numbers.
type forwardMark struct {
	from, first, end uint64
	at               int64 // since epoch
}

// note notes an arrival.
func (a *arrivals) note(x forwardMark) {
	a.mu.Lock()
	a.marks[a.n%len(a.marks)] = x
	a.n++
	a.mu.Unlock()
}

// of returns when a command came; of one that was sent again, the first time. It is 0 if that is
// not known any more.
func (a *arrivals) of(from, number uint64) (at int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for n := max(a.n-len(a.marks), 0); n < a.n; n++ {
		x := &a.marks[n%len(a.marks)]
		if x.from == from && x.first <= number && number < x.end {
			return x.at
		}
	}
	return 0
}

// arrived notes when a message of another member came, if it has commands.
func (t *tracer) arrived(m *replica.Message) {
	if !t.sends() || m.Forward == nil || len(m.Forward.Commands) == 0 {
		return
	}
	first := m.Forward.First
	t.arrivals.note(forwardMark{m.From, first, first + uint64(len(m.Forward.Commands)), sinceEpoch()})
}

// maxForwardedWaits is how many waits for caches a leader remembers of what others forward.
const maxForwardedWaits = 256

// waited notes how commands that others forwarded waited for caches.
func (t *tracer) waited(list []replica.ForwardedWait) {
	if len(list) > 0 && t.sends() {
		all := append(t.log.waits, list...)
		t.log.waits = append(all[:0], all[max(len(all)-maxForwardedWaits, 0):]...)
	}
}

// leadAll makes the leader's spans of entries, as soon as they are applied. The core calls it.
func (t *tracer) leadAll(list []tracedEntry) {
	t.log.forwarded = append(t.log.forwarded, list[:min(len(list),
		maxTraceNotes-len(t.log.forwarded))]...)
	t.leadAgain()
}

// leadAgain makes the spans of what is applied by now. One that leads no more makes none: it was
// perhaps another that had the entry in its log first.
func (t *tracer) leadAgain() {
	if len(t.log.forwarded) == 0 {
		return
	}
	left := t.log.forwarded[:0]
	for i := range t.log.forwarded {
		switch e := &t.log.forwarded[i]; {
		case !t.log.leads:
		case e.index > t.log.applied.last():
			left = append(left, *e) // the follower may be faster
		default:
			t.lead(e)
		}
	}
	clear(t.log.forwarded[len(left):])
	t.log.forwarded = left
}

// lead makes the spans of an entry that is applied, if it is not too long ago.
func (t *tracer) lead(e *tracedEntry) {
	asked := t.arrivals.of(e.member, e.number)
	if asked == 0 {
		return
	}
	s := stages{asked: asked, leads: true, index: e.index, entryTimes: t.log.times(e.index, asked)}
	if s.applied == 0 {
		return
	}
	for i := range t.log.waits {
		if w := &t.log.waits[i]; w.Member == e.member && w.Number == e.number {
			s.wait, s.through = w.CacheWait, t.log.instant(w.Until)
		}
	}
	now := time.Now()
	begun := now.UnixNano() - int64(now.Sub(epoch)) + asked
	s.call = &tracedCall{tracer: t, begun: asked, spans: &spans{
		begun: begun,
		call: trace.Span{
			Trace: e.trace, ID: trace.NewSpanID(rand.Uint64()), Parent: e.parent, State: e.state,
			Name: leaderSpan, Kind: trace.Server, Start: begun, Attributes: []trace.Attribute{
				{Key: "leasehold.from", Value: fmt.Sprintf("%x", e.member)},
			},
		},
	}}
	s.closeCommand(s.call)
	x := s.call.spans
	x.call.End = s.call.at(s.applied)
	t.out.Add(append(x.parts, x.call)...)
}

// leaderSpan is the name of the leader's part of a command that another member forwarded.
const leaderSpan = "leader"
