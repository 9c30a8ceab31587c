package client

import (
	"slices"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/wire"
)

// call is a request on a link.
type call struct {
	request  *pb.Request
	deadline time.Time // zero if there is none
	session  *session  // the session that assigned the request's number; nil if it has no number
	ends     *call     // the call that the same message cancels; nil if there is none
	size     int32     // upper bound on the size of the request; 0 if submit must compute it

	// Guarded by the link's mutex once the call has been submitted.
	kind kind
	gone bool   // the call was abandoned, or has received its last answer
	id   uint64 // 0 until it is sent

	// done is called with each response, and with the error after the last response. It is called
	// without locks held, and must not block. A call without done gets only one answer.
	done func(*pb.Response, error)
	// answered has capacity 1. It receives a token when response or err has been set.
	answered chan struct{}
	response *pb.Response
	err      error
}

// deliver passes the call a response, or the error that follows the last response.
func (c *call) deliver(r *pb.Response, err error) {
	if c.done != nil {
		c.done(r, err)
		return
	}
	c.answer(r, err)
}

// answer sets the first answer, which may be the only one.
func (c *call) answer(r *pb.Response, err error) {
	c.response, c.err = r, err
	c.answered <- struct{}{}
}

// openSlots is a power of 2 larger than the usual number of open calls.
const openSlots = 1024

// openCalls maps IDs to a link's calls that have been sent and may receive more responses. IDs are
// consecutive and most calls are open only briefly, so calls rarely share a slot.
type openCalls struct {
	n       int
	calls   int              // calls limited by maxCalls
	watches int              // calls of kind watching
	slots   [openSlots]*call // by ID
	more    map[uint64]*call // calls whose slot is occupied
}

// get returns the open call with the given ID, or nil.
func (o *openCalls) get(id uint64) *call {
	if c := o.slots[id%openSlots]; c != nil && c.id == id {
		return c
	}
	return o.more[id]
}

// has reports whether a call is open.
func (o *openCalls) has(c *call) bool { return o.get(c.id) == c }

// add adds a call. Its ID must not be open already.
func (o *openCalls) add(c *call) {
	o.count(c, 1)
	if s := &o.slots[c.id%openSlots]; *s == nil {
		*s = c
		return
	}
	if o.more == nil {
		o.more = make(map[uint64]*call)
	}
	o.more[c.id] = c
}

// remove removes an open call.
func (o *openCalls) remove(c *call) {
	o.count(c, -1)
	if s := &o.slots[c.id%openSlots]; *s == c {
		*s = nil
		return
	}
	delete(o.more, c.id)
}

// setKind changes the kind of an open call.
func (o *openCalls) setKind(c *call, k kind) {
	o.count(c, -1)
	c.kind = k
	o.count(c, 1)
}

func (o *openCalls) count(c *call, n int) {
	o.n += n
	switch c.kind {
	case watching:
		o.watches += n
	case renewal:
	default:
		o.calls += n
	}
}

func (o *openCalls) len() int { return o.n }

// waiting reports whether any call should be answered soon.
func (o *openCalls) waiting() bool { return o.n > o.watches }

// all returns the calls in the order in which they were sent.
func (o *openCalls) all() []*call {
	list := make([]*call, 0, o.n)
	for _, c := range o.slots {
		if c != nil {
			list = append(list, c)
		}
	}
	for _, c := range o.more {
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b *call) int {
		if a.id < b.id {
			return -1
		}
		return 1
	})
	return list
}

// fifo is a queue of calls that reuses its memory.
type fifo struct {
	list []*call
	head int // index of the first element in list; earlier elements are nil
}

func (f *fifo) len() int { return len(f.list) - f.head }

func (f *fifo) push(c *call) {
	if len(f.list) == cap(f.list) && f.head > len(f.list)/2 {
		n := copy(f.list, f.list[f.head:])
		clear(f.list[n:])
		f.list, f.head = f.list[:n], 0
	}
	f.list = append(f.list, c)
}

// first returns the oldest call of a non-empty queue.
func (f *fifo) first() *call { return f.list[f.head] }

// pop removes the oldest call.
func (f *fifo) pop() {
	f.list[f.head] = nil
	f.head++
	if f.head == len(f.list) {
		f.list, f.head = f.list[:0], 0
	}
}

// drain removes and returns all calls.
func (f *fifo) drain() []*call {
	list := f.list[f.head:]
	*f = fifo{}
	return list
}

// fixedBytes is an upper bound on the size of all tags, lengths and numbers in a request, or in a
// part of one. The bound applies to the kinds that atMost handles.
const fixedBytes = 128

// atMost returns an upper bound on the size of a request. For frequent kinds it does not examine
// every field. ok is false if a string is not valid UTF-8.
func atMost(r *pb.Request) (n int, ok bool) {
	switch x := r.Body.(type) {
	case *pb.Request_Put:
		if x.Put.LeaseRef.GetName() != "" {
			return wire.RequestSize(r)
		}
		return fixedBytes + len(r.Traceparent) + len(x.Put.Key) + len(x.Put.Value), true
	case *pb.Request_ReadRange:
		key, end := x.ReadRange.Key, x.ReadRange.RangeEnd
		return fixedBytes + len(r.Traceparent) + len(key) + len(end), true
	default:
		return wire.RequestSize(r)
	}
}
