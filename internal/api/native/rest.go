package native

import (
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
)

// A stream that does not use HTTP/2, or that comes through a relay, has no goroutines while its
// client is idle and only renewals are outstanding. The stream rests: it has no receiving goroutine
// until something arrives. The stream also pauses: it has no sending goroutine until something
// wakes it.

// usualLinger is how long a stream keeps its receiving goroutine after a request other than a
// renewal. A client that has sent such a request may soon send another.
const usualLinger = time.Second

// renews reports whether a message contains only renewals.
func renews(m *pb.ClientMessage) bool {
	for _, r := range m.Requests {
		if _, ok := r.Body.(*pb.Request_Renew); !ok {
			return false
		}
	}
	return true
}

// await waits up to d and reports whether there may be something to receive.
func (t *stream) await(d time.Duration) bool {
	if t.relay != nil {
		return t.relay.Await(d)
	}
	return t.rest.Await(d)
}

// beginRest starts a rest and reports whether it succeeded. If so, the receiving goroutine must
// end.
func (t *stream) beginRest() (begun bool) {
	t.resting.Store(true)
	receive := func() {
		t.resting.Store(false)
		t.receive(true)
	}
	if t.relay != nil {
		begun = t.relay.Park(receive)
	} else {
		begun = t.rest.Begin(receive)
	}
	if !begun {
		t.resting.Store(false)
		return false
	}
	t.waker.wake() // the sender can pause now
	return true
}

// waker wakes the sender of a stream.
type waker struct {
	resume func() // starts a sending goroutine; nil if the stream never pauses

	mu sync.Mutex
	// woken has capacity 1. It is nil while the stream pauses. It is modified only while holding
	// mu. The sending goroutine may read it without mu, because no other goroutine modifies it
	// while there is a sender.
	woken chan struct{}
}

func newWaker(resume func()) *waker { return &waker{resume: resume, woken: make(chan struct{}, 1)} }

// wake wakes the sender because there may be something to send or to check. It does not block.
func (w *waker) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.woken != nil {
		notify(w.woken)
		return
	}
	w.woken = make(chan struct{}, 1)
	w.resume()
}

// pause reports whether the sender can end because nothing has woken it since it last waited. If
// so, the next wake starts a new sender.
func (w *waker) pause() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.woken) > 0 {
		return false
	}
	w.woken = nil
	return true
}

// pause reports whether the stream has nothing to do. If so, the sender must end, because another
// goroutine may already be sending. Any event after the check wakes the stream.
func (t *stream) pause() bool {
	if t.waker.resume == nil || !t.mayPause() {
		return false
	}
	t.pauses.add(t)
	if t.mayPause() && t.waker.pause() {
		return true
	}
	t.pauses.remove(t)
	return false
}

// mayPause reports whether the stream can pause. It can pause only if it is resting, only renewals
// are open, and none of the events that wake paused streams has happened.
func (t *stream) mayPause() bool {
	if !t.resting.Load() {
		return false
	}
	select {
	case <-t.leader:
		return false
	case <-t.changed:
		return false
	case <-t.ctx.Done():
		return false
	case <-t.o.Stop:
		return false
	default:
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.end != nil || t.closing || len(t.open) > maxPaused {
		return false
	}
	for _, q := range t.open {
		if q.renewals == nil {
			return false
		}
	}
	return true
}

// maxPaused limits the open renewals of a paused stream, because mayPause checks each of them.
const maxPaused = 64

// pauses contains the paused streams. A single goroutine waits on behalf of all of them for the
// events that each stream would otherwise wait for.
type pauses struct {
	mu      sync.Mutex // guards the following fields
	streams map[*stream]struct{}
	leader  <-chan struct{}
	changed <-chan struct{}
	empty   chan struct{} // closed when no streams are left; nil if no goroutine is waiting
}

// add adds a stream. Any later event wakes it.
func (p *pauses) add(t *stream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.streams == nil {
		p.streams = make(map[*stream]struct{})
	}
	p.streams[t] = struct{}{}
	if p.empty == nil {
		p.empty = make(chan struct{})
		p.renewLocked(t.store)
		go p.wait(t.store, p.empty, p.leader, p.changed)
	}
}

func (p *pauses) renewLocked(s *store) {
	_, p.leader = s.node.Leader()
	p.changed = s.node.AccessChanged()
}

// remove removes a stream if it is present.
func (p *pauses) remove(t *stream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.streams, t)
	if len(p.streams) == 0 && p.empty != nil {
		close(p.empty)
		p.empty = nil
	}
}

// wakeBatch is the number of streams to wake before yielding. Each of them then starts a goroutine.
const wakeBatch = 64

// wait wakes all streams when the leader changes, when users or permissions change, or when the
// server stops. It returns when there are no more streams.
func (p *pauses) wait(s *store, empty, leader, changed <-chan struct{}) {
	stop := s.o.Stop
	for {
		select {
		case <-empty:
			return
		case <-leader:
		case <-changed:
		case <-stop:
			stop = nil // all streams are about to end
		}
		p.mu.Lock()
		if p.empty == empty { // otherwise another goroutine waits for the new streams
			p.renewLocked(s)
			leader, changed = p.leader, p.changed
		}
		list := slices.Collect(maps.Keys(p.streams))
		p.mu.Unlock()
		for i, t := range list {
			t.waker.wake() // a stream that has resumed in the meantime only checks once more
			if i%wakeBatch == wakeBatch-1 {
				runtime.Gosched()
			}
		}
	}
}
