package etcd

import (
	"encoding/binary"
	"sync/atomic"

	"google.golang.org/grpc/mem"

	"leasehold.dev/internal/mvcc"
	"leasehold.dev/internal/watch"
)

// Event is a change of a key on its way to the watchers, with its encoding: it
// is made on first use and then shared by everybody who watches. It is safe for
// concurrent use.
type Event struct {
	event *mvcc.Event
	// plain and full are the event as a field of a watch response, without and
	// with the previous pair. Two goroutines may both encode at first; either
	// result does.
	plain, full atomic.Pointer[encodedEvent]
}

// encodedEvent is the bytes of an event and the same as a buffer of gRPC's, so
// that a large event is sent from where it lies.
type encodedEvent struct {
	bytes  []byte
	buffer mem.Buffer
}

// NewEvent returns the event of a change, which must not change any more.
func NewEvent(e *mvcc.Event) *Event { return &Event{event: e} }

// Change returns the change itself.
func (e *Event) Change() *mvcc.Event { return e.event }

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

// encoded returns the event as a field of a watch response.
func (e *Event) encoded(prev bool) *encodedEvent {
	p := &e.plain
	if prev && e.event.Prev != nil {
		p = &e.full
	}
	if enc := p.Load(); enc != nil {
		return enc
	}
	enc := encodeEvent(e.event, p == &e.full)
	p.Store(enc)
	return enc
}

func encodeEvent(e *mvcc.Event, prev bool) *encodedEvent {
	kv := e.KV
	if e.Delete { // the cause is not for clients of etcd
		kv = &mvcc.KeyValue{Key: kv.Key, ModRevision: kv.ModRevision}
	}
	size := blockSize(pairSize(kv))
	if e.Delete {
		size += fieldSize(1)
	}
	if prev {
		size += blockSize(pairSize(e.Prev))
	}
	b := make([]byte, 0, blockSize(size))
	b = binary.AppendUvarint(append(b, bytes11), uint64(size))
	if e.Delete {
		b = appendField(b, varint1, 1)
	}
	b = appendPair(b, bytes2, kv)
	if prev {
		b = appendPair(b, bytes3, e.Prev)
	}
	return &encodedEvent{bytes: b, buffer: mem.SliceBuffer(b)}
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
		slab[i].event = &changes[i]
		events[i] = &slab[i]
	}
	return events, next, nil
}
