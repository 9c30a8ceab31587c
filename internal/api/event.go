package api

import (
	"sync/atomic"

	"google.golang.org/grpc/mem"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/internal/watch"
)

// Event is a change of a key on its way to the watchers of all APIs, with its
// encodings: each is made on first use and then shared by everybody who watches.
// It is safe for concurrent use.
type Event struct {
	event   mvcc.Event
	encoded [encodings]atomic.Pointer[Encoded]
}

// Encoding is a form in which an event goes over the wire.
type Encoding int

// The encodings: those of the etcd API and of leasehold.v1, without and with the
// pair as it was before.
const (
	EtcdPlain Encoding = iota
	EtcdFull
	NativePlain
	NativeFull
	encodings
)

// Encoded is the bytes of an event, and the same as a buffer of gRPC's, so that a
// large event is sent from where it lies.
type Encoded struct {
	Bytes  []byte
	Buffer mem.Buffer
}

// NewEvent returns the event of a change.
func NewEvent(e *mvcc.Event) *Event { return &Event{event: *e} }

// publishBatch is about how many events are published at once: what is published at once
// fits into a backlog that is empty, however much it is.
const publishBatch = 512

// publishLater is how many changes of one revision the hub turns into events itself: that would
// take the core too long. Of so many nobody uses the memory again (fsm.Machine.ReuseChanges).
const publishLater = 8192

// Publish tells the hub of changes, which are shown by its current view already. Nobody
// pays for events that nobody wants.
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

// newEvents returns the events of changes, of which there are n.
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

// Change returns the change itself.
func (e *Event) Change() *mvcc.Event { return &e.event }

// Key is the changed key.
func (e *Event) Key() string { return e.event.KV.Key }

// Revision is the revision that contains the change.
func (e *Event) Revision() int64 { return e.event.KV.ModRevision }

// IsDelete tells a delete from a put.
func (e *Event) IsDelete() bool { return e.event.Delete }

// Size is about the size in bytes of the event on the wire, the previous pair
// aside.
func (e *Event) Size() int {
	const numbers = 32
	return len(e.event.KV.Key) + len(e.event.KV.Value) + numbers
}

// Encoded returns the event in an encoding, which encode makes of the change if it
// was not needed before. Two goroutines may both encode at first; either result
// does.
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

// NewHistory returns the past of a view, for the hub. The events are encoded
// for each watcher that reads them: what is shared is the present.
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
