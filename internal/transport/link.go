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
	// A broken connection is redialed at once. After a failure, or if connections break repeatedly
	// before they are steadyAfter old, the pause doubles between the bounds. The shortest is short,
	// because a process that is being killed may accept a connection in its last moment, and only
	// the next one is refused.
	minPause    = 2 * time.Millisecond
	maxPause    = 500 * time.Millisecond
	steadyAfter = time.Second

	// A receiver sends "alive" once per aliveInterval. If none has come in maxMisses intervals, the
	// connection was cut silently.
	aliveInterval = time.Second
	maxMisses     = 5
)

// errSilent means that a connection exists but its other end does not answer.
var errSilent = errors.New("transport: the member has not responded for several seconds")

// errReplaced ends a stream in favor of a newer one of the same member.
var errReplaced = errors.New("transport: the member has opened a newer stream")

// A link is the connection to one other member at fixed URLs: its queue, its connection, and the
// state of its process.
type link struct {
	t      *Transport
	id     uint64
	urls   []url.URL
	ctx    context.Context
	cancel context.CancelFunc
	signals
	first int // the URL that worked last; only for run
	// logged holds the failures that were logged since the connection broke: the last text of each
	// kind. Only run uses it.
	logged map[string]string
	*traffic

	mu    sync.Mutex
	queue queue
	since time.Time // of the connection; zero for none
	// parted is when the last connection broke, or the link was made.
	parted time.Time
	// process answered last, previous before it; 0 for none. gone: Gone was reported for process.
	// reached: these URLs have led to the member, so a refusal there is meaningful.
	process, previous uint64
	gone, reached     bool
	mark              uint64    // since process was recorded; see saw
	refusedMark       uint64    // the mark of the last refusal there
	out               *outbound // the connection; nil: none
}

// signals wake the goroutines of a link. Each has room for one.
type signals struct {
	filled chan struct{} // the queue is not empty
	lost   chan struct{} // Unreachable is due
	redial chan struct{} // do not wait any longer
}

// newLink makes a link. old, which may be nil, is the one that it replaces.
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
		wake(l.lost) // with the queue of the previous link
	}
	l.t.wg.Go(l.run)
	l.t.wg.Go(l.report)
}

// wake puts a token into a channel of capacity 1.
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

// report reports losses to the handler, so that Send and the writer do not wait for it.
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
	short := 0 // short-lived connections in a row
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
		if expels(err) {
			pause = maxPause
		}
		l.wait(pause)
		pause = min(max(2*pause, minPause), maxPause)
	}
}

// known returns the process that answered last, 0 for none.
func (l *link) known() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.process
}

// wait sleeps for about d, or until there is news.
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
	answer  // of the other end
	stream  grpc.ClientStream
	ctx     context.Context
	cancel  context.CancelCauseFunc
}

// errRefused means that no process listens at any URL of the member.
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
		if firstErr == nil || expels(err) {
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
			err = fmt.Errorf("transport: the process that responded is not that member: %v", err)
		}
	}
	if err == nil {
		err = l.saw(other.process, mark) // it answered a call made after the mark
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

// greet opens a stream to the member in h and returns how it was accepted.
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
	return nil, answer{}, errors.New("transport: the response contains no process, or no common format")
}

// carry moves messages from the queue to c until that breaks, and returns the reason.
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
				// The reader has the better error: the other side's answer, or the reason for
				// giving up.
				return <-broken
			}
		}
	}
}

// watch closes c when nothing has come for too long. It counts its own ticks instead of comparing
// times: after a pause of this process, the first tick must not drop a member with answers that are
// waiting to be read.
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

// write sends batch in one frame, or in more if the messages are larger than their Size.
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
