package client

import (
	"slices"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/wire"
)

// call is one request of a link.
type call struct {
	request  *pb.Request
	deadline time.Time // zero for none
	session  *session  // that the request's number is of; nil if it has none
	ends     *call     // that is to be cancelled by the same message; nil for none
	size     int32     // at least the bytes of the request; 0 if submit is to find out

	// Guarded by the link's mutex as soon as the call is submitted.
	kind kind
	gone bool   // nobody waits for it, or it has its one answer
	id   uint64 // 0 until it is sent

	// done takes each response, or the error after which there will be none. It is
	// called without locks held, and must not wait. If it is nil the call has one answer.
	done func(*pb.Response, error)
	// answered has capacity 1, and has a token when the answer, which is in response or err,
	// is there.
	answered chan struct{}
	response *pb.Response
	err      error
}

// tell gives a call a response, or the error after which there will be none.
func (c *call) tell(r *pb.Response, err error) {
	if c.done != nil {
		c.done(r, err)
		return
	}
	c.answer(r, err)
}

// answer gives a call its one answer, or the first one.
func (c *call) answer(r *pb.Response, err error) {
	c.response, c.err = r, err
	c.answered <- struct{}{}
}

// openSlots is a power of 2, and more than are open mostly.
const openSlots = 1024

// openCalls are the calls of a link that were sent and have no last answer, by their IDs. IDs
// rise one by one and most calls are open for a short time, so most find a place of their own
// in the table.
type openCalls struct {
	n     int
	slots [openSlots]*call // by ID
	more  map[uint64]*call // whose slot is taken
}

// get returns the call with an ID, nil if it is not open.
func (o *openCalls) get(id uint64) *call {
	if c := o.slots[id%openSlots]; c != nil && c.id == id {
		return c
	}
	return o.more[id]
}

// has reports whether a call is open.
func (o *openCalls) has(c *call) bool { return o.get(c.id) == c }

// add adds a call whose ID is not open.
func (o *openCalls) add(c *call) {
	o.n++
	if s := &o.slots[c.id%openSlots]; *s == nil {
		*s = c
		return
	}
	if o.more == nil {
		o.more = make(map[uint64]*call)
	}
	o.more[c.id] = c
}

// remove removes a call that is open.
func (o *openCalls) remove(c *call) {
	o.n--
	if s := &o.slots[c.id%openSlots]; *s == c {
		*s = nil
		return
	}
	delete(o.more, c.id)
}

// len returns how many there are.
func (o *openCalls) len() int { return o.n }

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

// fifo is calls in the order in which they came. It uses its memory again.
type fifo struct {
	list []*call
	head int // of list; those before it are nil
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

// first returns the call that came first; there is one.
func (f *fifo) first() *call { return f.list[f.head] }

// pop takes it out.
func (f *fifo) pop() {
	f.list[f.head] = nil
	f.head++
	if f.head == len(f.list) {
		f.list, f.head = f.list[:0], 0
	}
}

// drain takes all out.
func (f *fifo) drain() []*call {
	list := f.list[f.head:]
	*f = fifo{}
	return list
}

// fixedBytes is at least what there is of a request, or of a part of one, but for the texts of
// the kinds that atMost knows: tags, lengths and numbers.
const fixedBytes = 128

// atMost bounds the bytes of a request from above, without looking at every field of those
// that are asked for often; ok is false if it has a text that cannot be sent.
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
