package client

import (
	"sync/atomic"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
)

const (
	// maxRequests bounds the number of requests in one message. maxMessage is an approximate bound
	// on its size in bytes.
	maxRequests = 512
	maxMessage  = 256 << 10
)

// outbox holds the requests of a link that have not been sent yet. The link's mutex guards it,
// apart from wake, which never changes, and the atomic fields.
type outbox struct {
	wake   chan struct{} // capacity 1: there may be something to send
	urgent fifo          // renewals
	queue  fifo
	notes  []*pb.Request // requests that get no answer
	last   uint64        // ID of the last request that was taken
	// answered counts the callers that have received an answer and have not made another request
	// since. asking counts the queued calls. delay reads both without the mutex.
	answered, asking atomic.Int32
}

// push adds a call.
func (o *outbox) push(c *call) {
	if c.kind == renewal {
		o.urgent.push(c)
	} else {
		o.queue.push(c)
		o.asking.Store(int32(o.queue.len()))
	}
	notify(o.wake)
}

// note adds a request that gets no answer.
func (o *outbox) note(r *pb.Request) {
	o.notes = append(o.notes, r)
	notify(o.wake)
}

// drain drops the notes, and removes and returns all calls.
func (o *outbox) drain() []*call {
	o.notes = nil
	o.asking.Store(0)
	return append(o.urgent.drain(), o.queue.drain()...)
}

// take moves calls to open and returns the message with their requests. It returns nil if there is
// nothing to send.
func (o *outbox) take(open *openCalls, now time.Time) *pb.ClientMessage {
	n := len(o.notes) + o.urgent.len() + o.queue.len()
	if n == 0 {
		return nil
	}
	m := &pb.ClientMessage{Requests: make([]*pb.Request, 0, min(n, maxRequests))}
	size := o.addNotes(m)
	calls := 0
	for ; size < maxMessage && len(m.Requests) < maxRequests; calls++ {
		c := o.next(m.Session, open.calls >= maxCalls)
		if c == nil {
			break
		}
		if s := c.session; s != nil && m.Session == nil {
			m.Session, m.AcknowledgedBelow = s.ref, s.below()
		}
		if e := c.ends; e != nil && !e.gone && open.has(e) {
			e.gone = true
			o.add(m, cancelOf(e))
		}
		o.add(m, c.request)
		c.id = o.last
		if !c.deadline.IsZero() {
			c.request.TimeoutMs = max(1, c.deadline.Sub(now).Milliseconds())
		}
		open.add(c)
		size += int(c.size)
	}
	o.asking.Store(int32(o.queue.len()))
	if len(m.Requests) == 0 {
		return nil
	}
	o.answered.Store(max(0, o.answered.Load()-int32(calls)))
	return m
}

// addNotes fills at most about half of a message with notes, which leaves room for renewals. It
// returns their approximate size.
func (o *outbox) addNotes(m *pb.ClientMessage) (size int) {
	n := 0
	for ; n < len(o.notes) && size < maxMessage/2 && n < maxRequests/2; n++ {
		o.add(m, o.notes[n])
		more, _ := atMost(o.notes[n])
		size += more
	}
	if o.notes = o.notes[n:]; len(o.notes) == 0 {
		o.notes = nil
	}
	return size
}

// add adds a request to the next message to be sent.
func (o *outbox) add(m *pb.ClientMessage, r *pb.Request) {
	o.last++
	r.Id = o.last
	m.Requests = append(m.Requests, r)
}

// next removes and returns the next call that can be sent. If the message already belongs to a
// session (of is not nil), the call must belong to the same session. Only renewals are sent before
// notes, or while full is true.
func (o *outbox) next(of *pb.SessionRef, full bool) *call {
	for {
		from := &o.urgent
		if o.urgent.len() == 0 {
			from = &o.queue
			if o.queue.len() == 0 || full || len(o.notes) > 0 {
				return nil
			}
		}
		c := from.first()
		if s := c.session; s != nil && of != nil && s.ref != of {
			return nil // the call goes into the next message
		}
		from.pop()
		if !c.gone {
			return c
		}
	}
}

// cancelOf returns a request that cancels a call already sent.
func cancelOf(c *call) *pb.Request {
	m := &struct {
		request pb.Request
		body    pb.Request_Cancel
	}{body: pb.Request_Cancel{Cancel: c.id}}
	m.request.Body = &m.body
	return &m.request
}
