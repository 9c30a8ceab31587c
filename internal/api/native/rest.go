package native

import (
	"maps"
	"runtime"
	"slices"
	"sync"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
)

// A stream without HTTP/2, or that a relay carries, has no goroutine while its client says nothing
// and has asked for nothing but renewals. It rests: nobody receives until something comes. And it
// pauses: nobody sends until something wakes it.

// usualLinger is for how long a stream has a goroutine that receives after each request that is no
// renewal: a client that has asked for something may soon do so again.
const usualLinger = time.Second

// renews reports whether a message has renewals only.
func renews(m *pb.ClientMessage) bool {
	for _, r := range m.Requests {
		if _, ok := r.Body.(*pb.Request_Renew); !ok {
			return false
		}
	}
	return true
}

// await waits for so long at most, and reports whether there may be something to receive.
func (t *stream) await(d time.Duration) bool {
	if t.relay != nil {
		return t.relay.Await(d)
	}
	return t.rest.Await(d)
}

// beginRest begins a rest, and reports whether it did: then nobody receives until there is
// something.
func (t *stream) beginRest() (begun bool) {
	t.resting.Store(true)
	receive := func() {
		t.resting.Store(false)
		t.receive(true)
	}
	if t.relay != nil {
		begun = t.relay.Rest(receive)
	} else {
		begun = t.rest.Begin(receive)
	}
	if !begun {
		t.resting.Store(false)
		return false
	}
	t.waker.wake() // what sends may pause now
	return true
}

// waker wakes what sends for a stream.
type waker struct {
	resume func() // begins a goroutine that sends; nil if a stream never pauses

	mu sync.Mutex
	// woken has capacity 1, and is nil while the stream has paused. It is changed under mu, but
	// what sends may read it without: while there is such a goroutine, nobody else changes it.
	woken chan struct{}
}

func newWaker(resume func()) *waker { return &waker{resume: resume, woken: make(chan struct{}, 1)} }

// wake tells what sends that there is something to be said, or to be looked at. It does not block.
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

// pause reports whether what sends may leave: nothing has woken it since it last waited. Then it
// is resumed when that happens.
func (w *waker) pause() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.woken) > 0 {
		return false
	}
	w.woken = nil
	return true
}

// pause reports whether the stream has nothing to do, so that what sends is to leave: another
// goroutine may send by then. What happens after the look wakes the stream.
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

// mayPause reports whether the stream rests, nothing but renewals is open, and nothing has happened
// that pauses waits for.
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

// maxPaused bounds the renewals of a stream that pauses, which are looked at.
const maxPaused = 64

// pauses are the streams that pause. Of what each of them would wait for by itself, one goroutine
// waits for all.
type pauses struct {
	mu      sync.Mutex // guards what follows
	streams map[*stream]struct{}
	leader  <-chan struct{}
	changed <-chan struct{}
	empty   chan struct{} // closed when there are none; nil if no goroutine waits
}

// add adds a stream. It is woken by what happens from now on.
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

// remove removes a stream, if it is there.
func (p *pauses) remove(t *stream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.streams, t)
	if len(p.streams) == 0 && p.empty != nil {
		close(p.empty)
		p.empty = nil
	}
}

// herd is how many streams are woken at once: each has a goroutine then.
const herd = 64

// wait wakes all streams when another member leads, when users or their rights have changed, and
// when the server stops. It returns when there are no streams.
func (p *pauses) wait(s *store, empty, leader, changed <-chan struct{}) {
	stop := s.o.Stop
	for {
		select {
		case <-empty:
			return
		case <-leader:
		case <-changed:
		case <-stop:
			stop = nil // they end
		}
		p.mu.Lock()
		if p.empty == empty { // else there are others, for whom another goroutine waits
			p.renewLocked(s)
			leader, changed = p.leader, p.changed
		}
		list := slices.Collect(maps.Keys(p.streams))
		p.mu.Unlock()
		for i, t := range list {
			t.waker.wake() // one that has gone on meanwhile looks once more
			if i%herd == herd-1 {
				runtime.Gosched()
			}
		}
	}
}
