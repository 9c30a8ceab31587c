package client

import (
	"slices"
	"testing"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
)

func newOutbox() *outbox { return &outbox{wake: make(chan struct{}, 1)} }

func newCall(k kind) *call { return &call{kind: k, request: &pb.Request{}} }

// TestOutboxOrder checks that notes are sent before calls. Renewals do not wait for notes that do
// not fit into the message. Abandoned calls are not sent.
func TestOutboxOrder(t *testing.T) {
	o, open := newOutbox(), &openCalls{}
	gone, get, renew := newCall(read), newCall(read), newCall(renewal)
	gone.gone = true
	for _, c := range []*call{gone, get, renew} {
		o.push(c)
	}
	const notes = maxRequests/2 + 10
	for range notes {
		o.note(&pb.Request{})
	}
	for i, want := range []struct {
		notes int
		call  *call
	}{{maxRequests / 2, renew}, {10, get}} {
		m := o.take(open, time.Now())
		if n := len(m.GetRequests()); n != want.notes+1 || m.Requests[n-1] != want.call.request {
			t.Fatalf("message %d has %d requests, want %d notes and a call", i, n, want.notes)
		}
		if !open.has(want.call) {
			t.Errorf("the call of message %d is not open", i)
		}
	}
	if get.id != notes+2 || gone.id != 0 {
		t.Errorf("the last call has ID %d, the abandoned call %d", get.id, gone.id)
	}
	if m := o.take(open, time.Now()); m != nil {
		t.Errorf("sent again: %v", m)
	}
}

// TestOutboxSessions checks that a message belongs to at most one session.
func TestOutboxSessions(t *testing.T) {
	o, open, all := newOutbox(), &openCalls{}, &sessions{}
	a, b := &pb.SessionRef{Id: 1}, &pb.SessionRef{Id: 2}
	for _, ref := range []*pb.SessionRef{nil, a, nil, a, b, nil} {
		c := newCall(read)
		if ref != nil {
			c.session = &session{of: all, ref: ref}
		}
		o.push(c)
	}
	for _, want := range []struct {
		ref *pb.SessionRef
		n   int
	}{{a, 4}, {b, 2}} {
		m := o.take(open, time.Now())
		if m.GetSession() != want.ref || len(m.GetRequests()) != want.n {
			t.Errorf("%d requests in session %v, want %d in %v",
				len(m.GetRequests()), m.GetSession(), want.n, want.ref)
		}
	}
}

// TestOutboxFull checks that only renewals are sent while too many calls are open.
func TestOutboxFull(t *testing.T) {
	o, open := newOutbox(), &openCalls{}
	for range maxCalls + 1 {
		o.push(newCall(read))
	}
	for open.calls < maxCalls {
		if o.take(open, time.Now()) == nil {
			t.Fatalf("sent only %d calls", open.calls)
		}
	}
	if m := o.take(open, time.Now()); m != nil {
		t.Errorf("sent %d requests too many", len(m.Requests))
	}
	renew := newCall(renewal)
	o.push(renew)
	if m := o.take(open, time.Now()); len(m.GetRequests()) != 1 || m.Requests[0] != renew.request {
		t.Errorf("sent %v, want the renewal", m)
	}
	open.remove(open.all()[0])
	if m := o.take(open, time.Now()); len(m.GetRequests()) != 1 {
		t.Errorf("sent %v after an answer, want the last call", m)
	}
}

// TestOutboxDrain checks that a drained outbox returns its calls and has nothing left to send.
func TestOutboxDrain(t *testing.T) {
	o, renew, get := newOutbox(), newCall(renewal), newCall(read)
	o.push(get)
	o.push(renew)
	o.note(&pb.Request{})
	if got := o.drain(); !slices.Equal(got, []*call{renew, get}) {
		t.Errorf("drained %v", got)
	}
	if m := o.take(&openCalls{}, time.Now()); m != nil || o.asking.Load() != 0 {
		t.Errorf("left %v, with %d calls", m, o.asking.Load())
	}
}
