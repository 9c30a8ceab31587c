package api

import (
	"sync/atomic"

	"google.golang.org/grpc/mem"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/internal/watch"
)

// Event is a change to a key, ready to be sent to the watchers of all APIs. Each encoding is
// created on first use and then shared by all watchers. An Event is safe for concurrent use.
type Event struct {
	event   mvcc.Event
	encoded [encodings]atomic.Pointer[Encoded]
}

// Encoding is a wire format of an event.
type Encoding int

// Both the etcd API and leasehold.v1 have one encoding with the previous key-value pair and one
// without it.
const (
	EtcdPlain Encoding = iota
	EtcdFull
	NativePlain
	NativeFull
	encodings
)

// Encoded is an encoded event. It is kept both as bytes and as a gRPC buffer, so a large event can
// be sent without copying it.
type Encoded struct {
	Bytes  []byte
	Buffer mem.Buffer
}

// NewEvent returns the Event for a change.
func NewEvent(e *mvcc.Event) *Event { return &Event{event: *e} }

// publishBatch is the approximate number of events to publish in one call. A batch of any size fits
// into an empty backlog.
const publishBatch = 512

// publishLater is the largest number of changes in one revision for which Publish creates the
// events itself. For a larger revision, the hub creates the events, because creating them here
// would block the core for too long. The memory of such a revision is never reused (see
// fsm.Machine.ReuseChanges).
const publishLater = 8192

// Publish sends changes to the hub. The hub's current view must already include them. Events are
// created only if there are watchers.
func Publish(h *watch.Hub[*Event], changes []fsm.Change) {
	for len(changes) > 0 {
		if n := len(changes[0].Events); n > publishLater {
			c := []fsm.Change{changes[0]}
			h.PublishLater(c[0].Revision, n, func() []*Event { return newEvents(c, n) })
			changes = changes[1:]
			continue
		}
		wanted := h.Wanted()
		n, size := 0, 0
		for n < len(changes) && (size < publishBatch || !wanted) &&
			len(changes[n].Events) <= publishLater {
			size += len(changes[n].Events)
			n++
		}
		var events []*Event
		if wanted {
			events = newEvents(changes[:n], size)
		}
		h.Publish(changes[n-1].Revision, events)
		changes = changes[n:]
	}
}

// newEvents returns the n events in changes.
func newEvents(changes []fsm.Change, n int) []*Event {
	slab := make([]Event, n)
	events := make([]*Event, 0, n)
	for i := range changes {
		for _, e := range changes[i].Events {
			slab[len(events)].event = e
			events = append(events, &slab[len(events)])
		}
	}
	return events
}

// Change returns the underlying change.
func (e *Event) Change() *mvcc.Event { return &e.event }

// Key returns the changed key.
func (e *Event) Key() string { return e.event.KV.Key }

// Revision returns the revision of the change.
func (e *Event) Revision() int64 { return e.event.KV.ModRevision }

// IsDelete reports whether the change is a delete.
func (e *Event) IsDelete() bool { return e.event.Delete }

// Size returns the approximate size of the event on the wire, excluding the previous key-value
// pair.
func (e *Event) Size() int {
	const numbers = 32
	return len(e.event.KV.Key) + len(e.event.KV.Value) + numbers
}

// Encoded returns the event in the given encoding. It calls encode on first use. Two goroutines may
// both call encode the first time; either result is fine.
func (e *Event) Encoded(as Encoding, encode func(*mvcc.Event) []byte) *Encoded {
	p := &e.encoded[as]
	if enc := p.Load(); enc != nil {
		return enc
	}
	b := encode(&e.event)
	enc := &Encoded{Bytes: b, Buffer: mem.SliceBuffer(b)}
	p.Store(enc)
	return enc
}

// NewHistory provides the hub with the past events in a view. Past events are encoded separately
// for each watcher; only new events are shared.
func NewHistory(v *mvcc.View) watch.History[*Event] { return history{v} }

type history struct{ *mvcc.View }

// Events implements watch.History.
func (h history) Events(key, end string, from int64, max int) ([]*Event, int64, error) {
	changes, next, err := h.EventsIn(key, end, from, max)
	if err != nil {
		return nil, 0, err
	}
	slab := make([]Event, len(changes))
	events := make([]*Event, len(changes))
	for i := range changes {
		slab[i].event = changes[i]
		events[i] = &slab[i]
	}
	return events, next, nil
}
