package listen

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
)

// Bounds of [Requests].
const (
	// leastUnfinished is what one connection may have at least, of requests that are not finished.
	// It may have more if one request may be larger than a part of it.
	leastUnfinished = 64 << 20
	unfinishedPart  = 16
	unfinishedAll   = 4 // times what one connection may have, all together may
	// unfinishedBeats, one each unfinishedBeat, is within what time a request must be complete.
	// They are counted, so that a process that was stopped does not blame others.
	unfinishedBeat  = 15 * time.Second
	unfinishedBeats = 4
	unfinishedPause = time.Minute // between two lines of the log
)

var (
	errUnfinished = errors.New("too many bytes of requests that are not finished wait here")
	errTooSlow    = errors.New("a request was not finished in time")
)

// Requests bounds what is kept of requests that cannot be answered yet: of messages that are not
// complete, and of messages of a stream that its call has not taken. gRPC bounds what it keeps
// for a stream, and not the sum: it gives the window of a connection back as soon as bytes have
// arrived. So the thousands of streams of one connection could fill the memory.
//
// A connection that has too much of that is closed. If all together have too much, the one that
// has had much for long is. A connection is also closed if a request is not complete after a
// while. A stream's request may wait for its call, as it may be the answers that hold it up.
//
// It is safe for concurrent use.
type Requests struct {
	log  *slog.Logger
	most int64 // of one connection
	told Pause
	held atomic.Int64 // by all

	mu      sync.Mutex
	senders map[*sender]struct{}
}

// NewRequests returns Requests for requests of a size.
func NewRequests(largest int, log *slog.Logger) *Requests {
	return newRequests(max(leastUnfinished, unfinishedPart*int64(largest)), log)
}

// NewStrangers returns Requests that bound only connections that have not been vouched for
// ([Vouch]), and let each of those have so much.
func NewStrangers(most int64, log *slog.Logger) *Requests { return newRequests(most, log) }

func newRequests(most int64, log *slog.Logger) *Requests {
	return &Requests{log: log, most: most, senders: make(map[*sender]struct{})}
}

// A sender is a connection that sends requests, or a request of HTTP.
type sender struct {
	all   *Requests
	from  string
	known atomic.Bool // it was vouched for, and may send what it likes

	// end is called once, if the sender has too much, or is too slow.
	end func(why error)

	mu      sync.Mutex
	calls   map[uint32]*incoming // by stream; those whose request may have more
	lived   int                  // calls when those that had ended were forgotten
	newest  uint32               // the stream whose headers came last
	held    int64
	since   time.Time // it has held something
	looking bool      // a timer runs: some request is not complete, or was not a while ago
	timer   *time.Timer
	gone    bool
}

// Receive says that a connection that sends one message after the other, without HTTP/2, needs so
// many bytes for one that comes. Done is to be called when it is there, has failed, or needs more.
// End is called before that if the message must not come, and is to close the connection.
func (all *Requests) Receive(from string, bytes int, end func()) (done func(), err error) {
	s := all.sender(from, func(error) { end() })
	in := &incoming{sender: s, ctx: context.Background(), begun: frameCost(bytes)}
	s.mu.Lock()
	s.calls[0] = in
	s.addLocked(in.begun)
	s.lookLocked()
	s.mu.Unlock()
	if err := s.check(); err != nil {
		return nil, status.Error(codes.ResourceExhausted, "leasehold: "+err.Error())
	}
	return func() { s.close() }, nil
}

// sender returns a new one.
func (all *Requests) sender(from string, end func(error)) *sender {
	s := &sender{all: all, from: from, end: end, calls: make(map[uint32]*incoming)}
	all.mu.Lock()
	all.senders[s] = struct{}{}
	all.mu.Unlock()
	return s
}

// incoming is the request of one call. Most is guarded by the sender's mu.
type incoming struct {
	sender *sender
	stream uint32
	ctx    context.Context // of the call

	head      [5]byte // of a message
	got       int     // bytes of head
	left      int64   // bytes of the message that are missing after its head
	begun     int64   // what the message costs that is not complete
	whole     int64   // messages that are complete, and were not taken
	cost      int64   // theirs
	isStream  bool    // a call has it, and takes one message after the other
	isReading bool    // the call waits for a message
	beats     int     // since it waits for the other side
	// room, if it is not nil, gets a token when a message was taken.
	room chan struct{}
}

// frameCost is what gRPC keeps for a frame of data, by its kinds of buffers.
func frameCost(n int) int64 {
	const small, piece, overhead = 1 << 10, 4 << 10, 64
	switch {
	case n == 0:
		return 0
	case n < small:
		return int64(n) + overhead
	case n <= piece:
		return piece + overhead
	}
	return int64(max(n, 4*piece)) + overhead
}

// Options returns what a server needs whose connections have [Credentials] with these Requests.
func (all *Requests) Options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.InTapHandle(all.tap),
		grpc.ReadBufferSize(0), // it is before the account
		grpc.ChainUnaryInterceptor(all.unary),
		grpc.ChainStreamInterceptor(all.stream),
	}
}

// tap is called by gRPC when it has read the headers of a call, and nothing after them.
func (all *Requests) tap(ctx context.Context, _ *tap.Info) (context.Context, error) {
	at, ok := lookup[sending](ctx)
	if !ok || at.sender.known.Load() {
		return ctx, nil
	}
	return at.sender.open(ctx), nil
}

type incomingKey struct{}

// open begins a call on the newest stream.
func (s *sender) open(ctx context.Context) context.Context {
	in := &incoming{sender: s}
	in.ctx = context.WithValue(ctx, incomingKey{}, in)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return in.ctx
	}
	in.stream = s.newest
	s.calls[in.stream] = in
	if len(s.calls) > 2*s.lived+64 {
		s.forgetLocked()
	}
	s.lookLocked()
	return in.ctx
}

// awaitsData notes that a frame of data has begun, and that not all of it is there, or no data.
func (s *sender) awaitsData() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.gone {
		s.lookLocked()
	}
}

// lookLocked sees to it that look is called, while a request is not complete.
func (s *sender) lookLocked() {
	if !s.looking {
		s.looking = true
		s.timer = time.AfterFunc(unfinishedBeat, s.look)
	}
}

// forgetLocked forgets the calls that have ended before they had their request.
func (s *sender) forgetLocked() {
	for _, in := range s.calls {
		if in.ctx.Err() != nil {
			in.endLocked()
		}
	}
	s.lived = len(s.calls)
}

// endLocked takes all of the request off the account: the call has it, or has ended.
func (in *incoming) endLocked() {
	delete(in.sender.calls, in.stream)
	in.sender.addLocked(-in.begun - in.cost)
	in.begun, in.cost, in.whole = 0, 0, 0
}

// addLocked counts bytes.
func (s *sender) addLocked(bytes int64) {
	if s.gone {
		return
	}
	if s.held == 0 {
		s.since = time.Now()
	}
	s.held += bytes
	s.all.held.Add(bytes)
}

// check ends the sender if it has too much, and others if all have.
func (s *sender) check() error {
	s.mu.Lock()
	if s.held > s.all.most {
		s.forgetLocked()
	}
	tooMuch := s.held > s.all.most
	s.mu.Unlock()
	if tooMuch {
		s.fail(errUnfinished)
		return errUnfinished
	}
	for s.all.held.Load() > unfinishedAll*s.all.most && s.all.relieve() {
	}
	return nil
}

// relieve ends the sender that has had most for long. It reports whether there was one.
func (all *Requests) relieve() bool {
	now := time.Now()
	var worst *sender
	most := 0.0
	all.mu.Lock()
	for s := range all.senders {
		s.mu.Lock()
		s.forgetLocked()
		if long := now.Sub(s.since) + time.Second; float64(s.held)*long.Seconds() > most {
			worst, most = s, float64(s.held)*long.Seconds()
		}
		s.mu.Unlock()
	}
	all.mu.Unlock()
	if worst == nil || all.held.Load() <= unfinishedAll*all.most {
		return false
	}
	worst.fail(errUnfinished)
	return true
}

// fail ends the sender.
func (s *sender) fail(why error) {
	if !s.close() {
		return
	}
	if s.all.told.Over(unfinishedPause) {
		s.all.log.Warn("closed a connection", "remote", s.from, "error", why)
	}
	s.end(why)
}

// close forgets the sender. It reports whether that is news.
func (s *sender) close() bool {
	s.all.mu.Lock()
	delete(s.all.senders, s)
	s.all.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return false
	}
	s.addLocked(-s.held)
	s.gone = true
	if s.timer != nil {
		s.timer.Stop() // or it would keep the sender
	}
	clear(s.calls)
	return true
}

// vouched says that the sender may send what it likes.
func (s *sender) vouched() {
	s.known.Store(true)
	s.close()
}

// look counts a beat for each request that waits for the sender.
func (s *sender) look() {
	s.mu.Lock()
	s.forgetLocked()
	late, more := false, false
	for _, in := range s.calls {
		if in.isStream && in.begun == 0 {
			continue // as a stream is that says nothing
		}
		more = true
		if in.isStream && !in.isReading {
			continue
		}
		in.beats++
		late = late || in.beats > unfinishedBeats
	}
	if s.looking = more && !late; s.looking {
		s.timer = time.AfterFunc(unfinishedBeat, s.look)
	}
	s.mu.Unlock()
	if late {
		s.fail(errTooSlow)
	}
}

// begins notes that headers of a stream are read.
func (s *sender) begins(stream uint32) {
	s.mu.Lock()
	s.newest = stream
	s.mu.Unlock()
}

// frame notes the beginning of a frame of data. It returns an error if the sender has too much.
func (s *sender) frame(stream uint32, size int) error {
	s.mu.Lock()
	if in := s.calls[stream]; in != nil {
		if in.begun == 0 {
			in.beats = 0
		}
		cost := frameCost(size)
		in.begun += cost
		s.addLocked(cost)
	}
	s.mu.Unlock()
	return s.check()
}

// data notes data of a frame that is noted.
func (s *sender) data(stream uint32, b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if in := s.calls[stream]; in != nil {
		in.dataLocked(b)
		if in.begun > 0 {
			s.lookLocked()
		}
	}
}

// dataLocked notes data, of a frame that is noted.
func (in *incoming) dataLocked(b []byte) {
	for len(b) > 0 {
		if in.got < len(in.head) {
			n := copy(in.head[in.got:], b)
			in.got, b = in.got+n, b[n:]
			in.left = int64(binary.BigEndian.Uint32(in.head[1:]))
		} else {
			n := min(in.left, int64(len(b)))
			in.left, b = in.left-n, b[n:]
		}
		if in.got == len(in.head) && in.left == 0 {
			in.whole++
			in.cost += in.begun
			in.got, in.begun = 0, 0
		}
	}
}

// takenLocked notes that the call has taken a message. It costs what the average of them does.
func (in *incoming) takenLocked() {
	if in.whole == 0 {
		return
	}
	cost := in.cost / in.whole
	in.whole, in.cost = in.whole-1, in.cost-cost
	in.sender.addLocked(-cost)
	select {
	case in.room <- struct{}{}:
	default:
	}
}

// requestOf returns the request of a call, nil if it is not counted.
func requestOf(ctx context.Context) *incoming {
	in, _ := ctx.Value(incomingKey{}).(*incoming)
	return in
}

// done says that the call has its whole request, or has ended.
func (in *incoming) done() {
	in.sender.mu.Lock()
	defer in.sender.mu.Unlock()
	in.endLocked()
}

// unary is a grpc.UnaryServerInterceptor.
func (all *Requests) unary(
	ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler,
) (any, error) {
	if in := requestOf(ctx); in != nil {
		in.done()
	}
	return next(ctx, req)
}

// stream is a grpc.StreamServerInterceptor.
func (all *Requests) stream(
	srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler,
) error {
	in := requestOf(s.Context())
	if in == nil {
		return next(srv, s)
	}
	in.sender.mu.Lock()
	in.isStream = true
	in.sender.mu.Unlock()
	defer in.done()
	return next(srv, &takingStream{s, in})
}

// takingStream notes which messages are taken.
type takingStream struct {
	grpc.ServerStream
	in *incoming
}

// RecvMsg implements grpc.ServerStream.
func (s *takingStream) RecvMsg(m any) error {
	s.in.reads(true)
	err := s.ServerStream.RecvMsg(m)
	s.in.reads(false)
	return err
}

// reads says that the call waits for a message, or that it has taken one.
func (in *incoming) reads(waits bool) {
	in.sender.mu.Lock()
	defer in.sender.mu.Unlock()
	in.isReading, in.beats = waits, 0
	if !waits {
		in.takenLocked()
	}
}

// lookup returns what an address of a call's other end leads to.
func lookup[T net.Addr](ctx context.Context) (found T, ok bool) {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return found, false
	}
	for addr := p.Addr; ; {
		if found, ok = addr.(T); ok {
			return found, true
		}
		outer, ok := addr.(interface{ Unwrap() net.Addr })
		if !ok {
			return found, false
		}
		addr = outer.Unwrap()
	}
}
