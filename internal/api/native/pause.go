package native

import (
	"maps"
	"runtime"
	"slices"
	"sync"
)

// A stream that rests, and has nothing to say, pauses: it has no goroutine that sends, either. It
// is resumed by whatever wakes it.

// waker wakes what sends for a stream.
type waker struct {
	resume func() // begins a goroutine that sends; nil if a stream never pauses

	mu sync.Mutex
	// woken has capacity 1, and is nil while the stream has paused. It is changed under mu, but what
	// sends may read it without: while there is such a goroutine, nobody else changes it.
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

// herd is how many streams are woken at once: each has a goroutine then.
const herd = 64

// pause reports whether the stream has nothing to do, so that what sends is to leave: another
// goroutine may send by then. What happens after the look wakes the stream.
func (t *stream) pause() bool {
	if t.waker.resume == nil || !t.resting.Load() {
		return false
	}
	t.pauses.add(t)
	if t.nothingHappened() && t.waker.pause() {
		return true
	}
	t.pauses.remove(t)
	return false
}

// nothingHappened reports whether the stream rests, and nothing has happened that pauses waits for.
func (t *stream) nothingHappened() bool {
	if !t.resting.Load() {
		return false
	}
	select {
	case <-t.leader:
	case <-t.changed:
	case <-t.ctx.Done():
	case <-t.o.Stop:
	default:
		return true
	}
	return false
}
