package direct

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// Rest lets a stream that says little have no goroutine that receives. While it rests, the server
// watches its connection, with all others that rest, and one goroutine takes the small messages
// that come. That one and the one that sends answers wait for no stream.
//
// A nil Rest never rests.
type Rest struct {
	stream *serverStream
	poller *poller
	socket *Socket
	id     uint64 // belongs to the poller

	mu      sync.Mutex // guards what follows; held while the sleeper is called inline
	sleeper Sleeper
	asleep  bool
	closed  bool
}

// A Sleeper is a handler whose stream may rest. Inline says that the call comes from a goroutine of
// all streams, which must not wait, and that the stream rests.
type Sleeper interface {
	// Next says that there is something to receive. Inline it is a whole message. Otherwise the
	// goroutine belongs to the stream, which rests no more.
	Next(inline bool)
	// Answer follows Later.
	Answer(inline bool)
}

// maxAtOnce bounds the messages of a stream that are taken at once while it rests.
const maxAtOnce = 16

type restKey struct{}

// RestOf returns the Rest of the stream whose context it is, nil if it cannot rest.
func RestOf(ctx context.Context) *Rest {
	r, _ := ctx.Value(restKey{}).(*Rest)
	return r
}

// Unrested returns a context for a stream that must not rest: what is called when it receives or
// sends may wait.
func Unrested(ctx context.Context) context.Context {
	return context.WithValue(ctx, restKey{}, (*Rest)(nil))
}

// Await waits for so long at most, and reports whether there may be something to receive. It is for
// the goroutine that receives.
func (r *Rest) Await(d time.Duration) bool { return r == nil || r.stream.await(d) }

// Begin begins a rest. It is called by the goroutine that receives, while nobody sends. If it
// reports true, that goroutine receives no more.
func (r *Rest) Begin(s Sleeper) bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return false
	}
	r.sleeper, r.asleep = s, true
	r.socket.dry, r.socket.eager = false, false
	r.socket.resting.Store(true)
	if r.poller.add(r) != nil {
		r.endLocked()
		return false
	}
	r.takeLocked() // what was there before
	return true
}

// End ends a rest. It is to be called by Next, inline: the caller receives from now on.
func (r *Rest) End() { r.endLocked() }

func (r *Rest) endLocked() {
	if r.asleep {
		r.asleep = false
		r.poller.remove(r)
		r.socket.resting.Store(false)
	}
}

// Rests reports whether the stream rests. Until that ends, what is sent does not wait, and must not
// be long.
func (r *Rest) Rests() bool { return r != nil && r.socket.resting.Load() }

// Later lets the sleeper be called to answer, soon. It reports false if the stream does not rest.
func (r *Rest) Later() bool {
	if !r.Rests() {
		return false
	}
	r.poller.answers.add(r)
	return true
}

// Full reports whether something was sent that the client has to make room for. Then Drain waits
// until it has.
func (r *Rest) Full() bool { return r != nil && r.socket.full() }

// Drain waits until all that was sent is on its way.
func (r *Rest) Drain() error {
	if r == nil || r.socket.drain() == nil {
		return nil
	}
	return r.stream.lost()
}

// readable is called by the poller when there is something to read; hangs says that the client may
// have hung up.
func (r *Rest) readable(hangs bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.asleep {
		r.socket.dry = false
		r.socket.eager = r.socket.eager || hangs
		r.takeLocked()
	}
}

// takeLocked lets the sleeper take what is there. What is no small message, or one too many, needs
// a goroutine.
func (r *Rest) takeLocked() {
	for n := 0; r.asleep; n++ {
		switch next := r.stream.in.next(); {
		case next == nothing:
			r.stream.in.giveBack()
			return
		case next == message && n < maxAtOnce:
			r.sleeper.Next(true)
		default:
			r.endLocked()
			go r.sleeper.Next(false)
		}
	}
}

// Wake ends a rest, if there is one. It is for a caller that sends what may have to wait for room.
func (r *Rest) Wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.asleep {
		r.endLocked()
		go r.sleeper.Next(false)
	}
}

// abandon ends all rest of a stream whose connection is about to be closed.
func (r *Rest) abandon() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	if r.asleep {
		r.endLocked()
		go r.sleeper.Next(false) // learns that it is
	}
}

// close ends all rest, as the stream ends.
func (r *Rest) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.endLocked()
}

// answer is called by the goroutine that sends for streams that rest.
func (r *Rest) answer() {
	r.mu.Lock()
	s := r.sleeper
	if r.asleep {
		defer r.mu.Unlock()
		s.Answer(true)
		return
	}
	r.mu.Unlock()
	s.Answer(false)
}

// await is [Rest.Await].
func (g *serverStream) await(d time.Duration) bool {
	g.receiving.Lock()
	defer g.receiving.Unlock()
	if g.in.w > g.in.r || g.through || !g.readBy(time.Now().Add(d)) {
		return true
	}
	err := g.in.fill(1)
	var late net.Error
	return !g.readBy(time.Time{}) || !errors.As(err, &late) || !late.Timeout()
}

// readBy sets by when something must have been read, unless the stream has ended.
func (g *serverStream) readBy(at time.Time) bool {
	g.ending.Lock()
	defer g.ending.Unlock()
	return g.ctx.Err() == nil && g.c.SetReadDeadline(at) == nil
}

// answers are the streams that rest and have something to send.
type answers struct {
	wake chan struct{} // capacity 1: there are some
	done chan struct{}

	mu   sync.Mutex // guards what follows
	list []*Rest
}

func newAnswers() answers {
	return answers{wake: make(chan struct{}, 1), done: make(chan struct{})}
}

func (a *answers) add(r *Rest) {
	a.mu.Lock()
	a.list = append(a.list, r)
	first := len(a.list) == 1
	a.mu.Unlock()
	if first {
		select {
		case a.wake <- struct{}{}:
		default:
		}
	}
}

func (a *answers) close() { close(a.done) }

// run lets streams send until there are none.
func (a *answers) run() {
	var list []*Rest
	for {
		select {
		case <-a.wake:
		case <-a.done:
			return
		}
		a.mu.Lock()
		a.list, list = list[:0], a.list
		a.mu.Unlock()
		for i, r := range list {
			r.answer()
			list[i] = nil
		}
	}
}
