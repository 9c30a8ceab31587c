package native

import (
	"time"

	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/direct"
)

// A stream whose client only renews leases rests: its renewals are taken by a goroutine of all such
// streams, and answered by another one. One that a relay carries rests, too: its renewals come in
// columns (columns.go), and what else comes ends the rest.

// usualLinger is for how long a stream has a goroutine that receives after each request that is no
// renewal: a client that has asked for something may soon do so again.
const usualLinger = time.Second

// restful bounds the renewals of a stream that rests.
const restful = 64

var _ direct.Sleeper = (*stream)(nil)

// renews reports whether a message has renewals only.
func renews(m *pb.ClientMessage) bool {
	for _, r := range m.Requests {
		if _, ok := r.Body.(*pb.Request_Renew); !ok {
			return false
		}
	}
	return true
}

// beginRest begins a rest if nothing is open but renewals. Nothing may be on its way to the client
// that may be large, or that has to wait.
func (t *stream) beginRest() bool {
	if !t.sending.TryLock() {
		return false
	}
	defer t.sending.Unlock()
	if !t.restful() {
		return false
	}
	t.resting.Store(true)
	begun := false
	if t.relay != nil {
		begun = t.relay.Rest(func() { t.Next(false) })
	} else {
		begun = t.rest.Begin(t)
	}
	if !begun {
		t.resting.Store(false)
	}
	t.waker.wake() // what sends may pause now, or not yet
	return begun
}

// endRest notes that the stream does not rest any more.
func (t *stream) endRest() {
	t.resting.Store(false)
	t.waker.wake() // it may have paused
}

// await waits for so long at most, and reports whether there may be something to receive.
func (t *stream) await(d time.Duration) bool {
	if t.relay != nil {
		return t.relay.Await(d)
	}
	return t.rest.Await(d)
}

// restful reports whether nothing is open but renewals that will have short answers, and not many.
func (t *stream) restful() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.end != nil || t.closing || len(t.done) > 0 || len(t.open) > restful {
		return false
	}
	for _, q := range t.open {
		if q.renewals == nil {
			return false
		}
	}
	return true
}

// Next implements direct.Sleeper. What takes more than a moment has a goroutine.
func (t *stream) Next(inline bool) {
	if !inline {
		t.endRest()
		t.receive(nil)
		return
	}
	m, err := t.nextRenewals()
	switch {
	case err != nil:
		t.rest.End()
		t.endRest()
		t.through(err)
	case m != nil:
		t.rest.End()
		t.endRest()
		go t.receive(m)
	}
}

// nextRenewals takes a message of renewals. Another message it returns.
func (t *stream) nextRenewals() (left *pb.ClientMessage, err error) {
	defer t.o.Panics.End("stream", &err)
	m, err := t.grpc.Recv()
	if err != nil {
		return nil, err
	}
	if !renews(m) || t.crowded(m) {
		return m, nil
	}
	return nil, t.take(m)
}

// crowded reports whether too much waits for an answer, or would with a message.
func (t *stream) crowded(m *pb.ClientMessage) bool {
	renewing := 0
	for _, r := range m.Requests {
		renewing += leasesRenewed(r)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.open) > restful || !t.fitsLocked(renewing)
}

// Answer implements direct.Sleeper. What has to wait is for the goroutine of the stream.
func (t *stream) Answer(inline bool) {
	if !inline || !t.sending.TryLock() {
		t.waker.wake()
		return
	}
	defer t.sending.Unlock()
	if !t.rest.Full() {
		if err := t.sayInline(); err != nil {
			t.through(err)
		}
	}
	if t.rest.Full() {
		t.waker.wake()
	}
}

func (t *stream) sayInline() (err error) {
	defer t.o.Panics.End("stream", &err)
	_, err = t.sayNow(true) // the goroutine of the stream finds out whether that has ended
	return err
}

// shortly bounds the bytes, about, of answers for which a stream goes on resting. For more there
// may be no room at once.
const shortly = 16 << 10

// short reports whether the answers of requests are so short.
func short(done []*request) bool {
	const each = 24 // bytes of the outcome of a renewal
	size := 0
	for _, q := range done {
		switch {
		case q == nil:
		case q.err != nil:
			size += len(q.err.Error()) + fixedSize
		case q.response != nil:
			size += proto.Size(q.response)
		case q.renewals != nil:
			size += each * len(q.renewals.asks.IDs)
		}
	}
	return size < shortly
}
