package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
)

const (
	// A broken connection is redialed immediately. After a failure, or if connections repeatedly
	// break before they are steadyAfter old, the pause doubles within these bounds. The minimum is
	// short because a process that is being killed may accept a connection in its last moments. In
	// that case, only the next connection is refused.
	minPause    = 2 * time.Millisecond
	maxPause    = 500 * time.Millisecond
	steadyAfter = time.Second

	// A receiver sends "alive" once per aliveInterval. If none has arrived for maxMisses intervals,
	// the connection was cut silently.
	aliveInterval = time.Second
	maxMisses     = 5
)

// errSilent means that the connection is open but its other end does not answer.
var errSilent = errors.New("transport: the member has not responded for several seconds")

// errReplaced ends a stream in favor of a newer stream from the same member.
var errReplaced = errors.New("transport: the member has opened a newer stream")

// A link manages the connection to one other member at fixed URLs: its queue, its connection, and
// the state of its process.
type link struct {
	t      *Transport
	id     uint64
	urls   []url.URL
	ctx    context.Context
	cancel context.CancelFunc
	signals
	first int // index of the URL that last worked; used only by run
	// logged holds the failures that have been logged since the connection broke. It maps each kind
	// to its last text. Only run uses it.
	logged map[string]string
	*traffic

	mu    sync.Mutex
	queue queue
	since time.Time // when the connection was made; zero if there is none
	// parted is when the last connection broke or, if there was none, when the link was created.
	parted time.Time
	// process is the process that answered last, and previous is the one before it; 0 means none.
	// gone is set once Gone has been reported for process. reached is set once these URLs have led
	// to the member, because only then is a refused connection meaningful.
	process, previous uint64
	gone, reached     bool
	mark              uint64    // assigned when process was recorded; see observe
	refusedMark       uint64    // mark in the last refusal from the member
	out               *outbound // the connection, or nil
}

// signals wake the goroutines of a link. Each channel has capacity 1.
type signals struct {
	filled chan struct{} // the queue is not empty
	lost   chan struct{} // Unreachable is due
	redial chan struct{} // ends the pause before redialing
}

// newLink returns a new link. old, which may be nil, is the link that it replaces.
func newLink(t *Transport, p Peer, old *link) *link {
	l := &link{
		t: t, id: p.ID, urls: p.URLs, logged: make(map[string]string), traffic: new(traffic),
		parted:  time.Now(),
		signals: signals{make(chan struct{}, 1), make(chan struct{}, 1), make(chan struct{}, 1)},
	}
	l.ctx, l.cancel = context.WithCancel(t.ctx)
	if old != nil {
		l.traffic = old.traffic
		old.mu.Lock()
		l.process, l.previous, l.gone = old.process, old.previous, old.gone
		l.mark, l.refusedMark, l.parted = old.mark, old.refusedMark, old.parted
		old.mu.Unlock()
	}
	return l
}

func (l *link) start() {
	if l.process != 0 {
		wake(l.lost) // any messages in the old link's queue are lost
	}
	l.t.wg.Go(l.run)
	l.t.wg.Go(l.report)
}

// wake puts a token into a channel of capacity 1, unless the channel is full.
func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (l *link) send(m Message) {
	l.mu.Lock()
	dropped := 0
	if !l.queue.push(m, connectedLimits) {
		dropped++
	}
	if l.since.IsZero() {
		dropped += l.queue.trim(idleLimits)
	}
	l.mu.Unlock()
	if dropped > 0 {
		l.dropped.Add(uint64(dropped))
		wake(l.lost)
	}
	wake(l.filled)
}

// report reports losses to the handler, so that Send and the writer need not wait for the handler.
func (l *link) report() {
	for {
		select {
		case <-l.ctx.Done():
			return
		case <-l.lost:
			l.t.cfg.Handler.Unreachable(l.id)
		}
	}
}

// run keeps the member connected.
func (l *link) run() {
	var pause time.Duration
	short := 0 // number of successive short-lived connections
	for l.ctx.Err() == nil {
		known := l.known()
		c, err := l.connect()
		if err == nil {
			began := time.Now()
			err = l.carry(c)
			if pause = 0; time.Since(began) > steadyAfter {
				short = 0
			} else if short++; short > 1 {
				pause = minPause << min(short, 8)
			}
		}
		l.failed(err, known)
		if isExpulsion(err) {
			pause = maxPause
		}
		l.wait(pause)
		pause = min(max(2*pause, minPause), maxPause)
	}
}

// known returns the process that answered last, or 0 if none has.
func (l *link) known() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.process
}

// wait sleeps for about d, or until it is woken.
func (l *link) wait(d time.Duration) {
	if d == 0 {
		return
	}
	timer := time.NewTimer(d/2 + rand.N(d/2))
	defer timer.Stop()
	select {
	case <-l.ctx.Done():
	case <-l.redial:
	case <-timer.C:
	}
}

// outbound is one connection that carries messages to the member.
type outbound struct {
	link    *link
	session session
	answer  // identifies the other end
	stream  grpc.ClientStream
	ctx     context.Context
	cancel  context.CancelCauseFunc
}

// errRefused means that no process listens at any of the member's URLs.
type errRefused struct{ error }

// connect tries each URL once.
func (l *link) connect() (*outbound, error) {
	var firstErr error
	refused := len(l.urls) > 0
	for i := range l.urls {
		at := (l.first + i) % len(l.urls)
		c, err := l.try(l.urls[at])
		if err == nil {
			l.first = at
			return c, nil
		}
		refused = refused && isRefused(err, l.urls[at])
		if firstErr == nil || isExpulsion(err) {
			firstErr = err
		}
		if l.ctx.Err() != nil {
			break
		}
	}
	if firstErr == nil {
		firstErr = errors.New("transport: the member has no URL")
	}
	if refused {
		firstErr = errRefused{firstErr}
	}
	return nil, firstErr
}

// try connects to u and opens the stream.
func (l *link) try(u url.URL) (*outbound, error) {
	l.mu.Lock()
	mark, refusedMark := l.mark, l.refusedMark
	l.mu.Unlock()
	ctx, cancel := context.WithCancelCause(l.ctx)
	timer := time.AfterFunc(helloTimeout, func() { cancel(errSilent) })
	defer timer.Stop()
	s, err := connect(ctx, u, l.t.cfg.Way)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	stream, other, err := l.t.greet(ctx, s, hello{to: l.id, mark: refusedMark}, &messagesDesc)
	if !timer.Stop() {
		err = errSilent
	}
	if err == nil {
		if err = l.t.cfg.Handler.Met(l.id, other.incarnation); err != nil {
			err = fmt.Errorf("transport: the process that responded is not the expected member: %v", err)
		}
	}
	if err == nil {
		err = l.observe(other.process, mark) // the process answered a call that was made after the mark
	}
	if err != nil {
		l.noteMark(err)
		cancel(nil)
		s.close()
		return nil, err
	}
	return &outbound{
		link: l, session: s, answer: other, stream: stream, ctx: ctx, cancel: cancel,
	}, nil
}

// greet opens a stream to the member that h names, and returns the stream and the answer.
func (t *Transport) greet(
	ctx context.Context, s session, h hello, desc *grpc.StreamDesc,
) (grpc.ClientStream, answer, error) {
	h.cluster, h.from, h.instance, h.formats = t.cfg.Cluster, t.cfg.Self, t.instance(), t.cfg.Formats
	h.version, h.decided = t.cfg.Version()
	t.mu.RLock()
	own := t.own
	t.mu.RUnlock()
	stream, err := s.NewStream(h.context(ctx, own), desc, "/"+serviceName+"/"+desc.StreamName)
	if err != nil {
		return nil, answer{}, err
	}
	md, err := stream.Header()
	if err == nil {
		if other, ok := readAnswer(md); ok && t.cfg.Formats.has(other.format) {
			return stream, other, nil
		}
	}
	if err := stream.RecvMsg(new(blob)); err != nil {
		return nil, answer{}, parseRefusal(err, stream.Trailer())
	}
	return nil, answer{}, errors.New("transport: the response has no process ID " +
		"or no common format")
}

// carry sends messages from the queue over c until c breaks, and returns the reason.
func (l *link) carry(c *outbound) error {
	defer c.session.close()
	defer c.cancel(nil)
	l.connected(c)
	defer l.disconnected()

	misses := new(atomic.Int32)
	broken := make(chan error, 1)
	l.t.wg.Go(func() { broken <- c.listen(misses) })
	l.t.wg.Go(func() { c.watch(misses) })
	l.t.wg.Go(c.measure)

	var batch []Message
	for {
		select {
		case err := <-broken:
			return err
		case <-l.filled:
		}
		for {
			batch = l.take(batch[:0])
			if len(batch) == 0 {
				break
			}
			if err := l.write(c, batch); err != nil {
				if !errors.Is(err, io.EOF) {
					c.cancel(err)
				}
				// The reader has the more useful error: the other side's answer, or the reason for
				// giving up.
				return <-broken
			}
		}
	}
}

// watch closes c when nothing has arrived for too long. It counts its own ticks instead of
// comparing times. After a pause of this process, the first tick must not close the connection to a
// member whose answers are waiting to be read.
func (c *outbound) watch(misses *atomic.Int32) {
	ticker := time.NewTicker(aliveInterval)
	defer ticker.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-ticker.C:
			if misses.Add(1) > maxMisses {
				c.cancel(errSilent)
				return
			}
		}
	}
}

// listen waits for the end of the stream and records each "alive".
func (c *outbound) listen(misses *atomic.Int32) error {
	for {
		if err := c.stream.RecvMsg(new(blob)); err != nil {
			if cause := context.Cause(c.ctx); cause != nil {
				return cause
			}
			return parseRefusal(err, c.stream.Trailer())
		}
		misses.Store(0)
	}
}

func (l *link) take(dst []Message) []Message {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.queue.take(dst, frameTarget)
}

// write sends batch in one frame, or in several frames if the messages are larger than their Size.
func (l *link) write(c *outbound, batch []Message) error {
	defer clear(batch)
	for len(batch) > 0 {
		size := 0
		for _, m := range batch {
			size += m.Size() + lengthSize
		}
		frame := newFrame(c.format, size)
		for len(batch) > 0 && !frame.full() {
			if size, ok := frame.add(batch[0]); !ok {
				l.t.log.Error("message dropped", "member", l.name(), "error", tooLarge(size))
				l.dropped.Add(1)
				wake(l.lost)
			}
			batch = batch[1:]
		}
		if frame.empty() {
			continue
		}
		bytes := len(frame.data)
		if err := c.stream.SendMsg(frame.seal()); err != nil {
			return err
		}
		l.sent.Add(uint64(bytes))
	}
	return nil
}
