package listen

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/tap"
)

// Bounds of [Requests].
const (
	// leastUnfinished is the minimum bound on a connection's unfinished requests. The bound is
	// larger if one request may exceed a part of it.
	leastUnfinished = 64 << 20
	unfinishedPart  = 16
	// strangerPart limits a stranger to 1/strangerPart of that.
	strangerPart  = 4
	unfinishedAll = 4 // the bound for all together, as a multiple of one connection's
	// A request must be complete within unfinishedBeats of unfinishedBeat. Beats are counted
	// instead of time, so that a pause of this process is not blamed on clients. The first message
	// of a stranger's stream must arrive within strangerBeats.
	unfinishedBeat  = 5 * time.Second
	unfinishedBeats = 12
	strangerBeats   = 3
	// bodyRoom is how much of a body is read while its call has messages to consume.
	bodyRoom = 1 << 20
)

var (
	errUnfinished = errors.New("too many bytes of unfinished requests")
	errTooSlow    = errors.New("a request was not finished in time")
)

// Requests bounds what clients can make a server keep before their calls are served: incomplete
// messages, messages of a stream that its call has not consumed, and calls of strangers. gRPC
// bounds what it keeps for a stream, but not the sum: it extends the window of a connection as soon
// as bytes arrive. So the thousands of streams of one connection could fill the memory.
//
// A connection that has too much is closed. If all together have too much, the one that has had the
// most for longest is closed. A connection is also closed if a request stays incomplete for a
// while. A stream's request may wait for its call, because unread answers may be blocking the call.
//
// It is safe for concurrent use.
type Requests struct {
	log *slog.Logger
	// most bounds the unfinished bytes of one connection, 0 for no bound, and mostStranger those of
	// a stranger.
	most, mostStranger int64
	// known reports whether the caller of a call has logged in; if nil, no caller has to.
	// strangerCalls bounds the calls of a connection until then.
	known         func(context.Context) bool
	strangerCalls int
	mostCalls     int // of all strangers
	warnings      rate.Sometimes
	held          atomic.Int64  // by all
	opens         *rate.Limiter // of calls, in all strangers

	mu        sync.Mutex // guards the following fields
	senders   map[*sender]struct{}
	strangers crowd // calls of strangers in progress, by their senders
	sites     *simplelru.LRU[string, *site]
}

// NewRequests returns Requests for requests up to a size.
func NewRequests(largest int, log *slog.Logger) *Requests {
	most := max(leastUnfinished, unfinishedPart*int64(largest))
	return newRequests(most, most/strangerPart, log)
}

// BoundStrangers bounds what clients can cost before they log in, such as the calls of a
// connection. known reports whether the caller of a new call is known, from memory, to have logged
// in. Until then, or until [Vouch], the connection is a stranger's. BoundStrangers returns its
// receiver.
func (all *Requests) BoundStrangers(calls int, known func(context.Context) bool) *Requests {
	all.strangerCalls, all.known = calls, known
	return all
}

// NewStrangers returns Requests that bound only strangers, and allow each this many unfinished
// bytes. All connections begin as strangers.
func NewStrangers(most int64, log *slog.Logger) *Requests {
	return newRequests(0, most, log).BoundStrangers(fewCalls, Nobody)
}

// Share bounds the calls of all strangers.
func (all *Requests) Share(calls int) *Requests {
	all.mostCalls = calls
	return all
}

// Nobody is an argument for BoundStrangers, for servers in which only Vouch identifies clients that
// have logged in.
func Nobody(context.Context) bool { return false }

func newRequests(most, mostStranger int64, log *slog.Logger) *Requests {
	sites, _ := simplelru.NewLRU[string, *site](mostSites, nil) // it fails for no size
	return &Requests{
		log: log, most: most, mostStranger: mostStranger, mostCalls: strangersMost,
		warnings: rate.Sometimes{Interval: warnPause},
		senders:  make(map[*sender]struct{}), strangers: newCrowd(), sites: sites,
		opens: rate.NewLimiter(strangersRate, strangersBurst),
	}
}

// A sender is a connection that sends requests, or an HTTP request.
type sender struct {
	all   *Requests
	from  string
	site  *site
	known atomic.Bool // it is not a stranger
	done  chan struct{}
	// Calls and messages begun, and calls reset, since the last wait. They belong to the reading
	// goroutine.
	opens, resets int

	// end is called once, if the sender has too much, or is too slow.
	end func(why error)

	mu     sync.Mutex
	calls  map[uint32]*incoming // by stream; those whose request may continue
	lived  int                  // number of calls when ended ones were last removed
	newest uint32               // the stream of the last headers
	held   int64
	since  time.Time   // since when it has held any bytes
	timer  *time.Timer // nil unless a request is, or recently was, incomplete
	gone   bool

	calling map[*entry]struct{} // a stranger's calls in progress; guarded by all.mu
}

// sender returns a new sender.
func (all *Requests) sender(from string, end func(error)) *sender {
	s := &sender{
		all: all, from: from, end: end, done: make(chan struct{}),
		calls: make(map[uint32]*incoming),
	}
	s.known.Store(all.known == nil)
	all.mu.Lock()
	defer all.mu.Unlock()
	all.senders[s] = struct{}{}
	s.site = all.siteLocked(from)
	return s
}

// isFree reports whether the sender has no bounds.
func (s *sender) isFree() bool { return s.all.most == 0 && s.known.Load() }

// most returns the bound on the sender's unfinished bytes.
func (s *sender) most() int64 {
	if s.known.Load() {
		return s.all.most
	}
	return s.all.mostStranger
}

// incoming is the request of one call. The sender's mu guards most fields.
type incoming struct {
	sender *sender
	stream uint32
	ctx    context.Context // of the call
	// refused is the error if the call is rejected, or nil.
	refused error

	head      [5]byte // of a message
	got       int     // bytes of head
	left      int64   // bytes of the message that are missing after its head
	begun     int64   // cost of the incomplete message
	whole     int64   // complete messages that were not consumed
	cost      int64   // their cost
	isStream  bool    // its call has begun, and consumes one message after another
	isReading bool    // the call waits for a message
	spoke     bool    // a complete message has arrived
	beats     int     // since it began to wait for the client
	// room, if not nil, gets a token when a message was consumed.
	room chan struct{}
}

// frameCost is what gRPC keeps for a data frame, by its buffer classes.
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

// Options returns the options of a server whose connections have [Credentials] with these Requests.
func (all *Requests) Options() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.InTapHandle(all.tap),
		grpc.ReadBufferSize(0), // frames must see the bytes before gRPC buffers them
		grpc.ChainUnaryInterceptor(all.unary),
		grpc.ChainStreamInterceptor(all.stream),
	}
}

// tap is called by gRPC when it has read the headers of a call, and nothing after them. It holds a
// lock of the connection, and no goroutine serves the call yet.
func (all *Requests) tap(ctx context.Context, _ *tap.Info) (context.Context, error) {
	at, ok := remoteOf(ctx)
	if !ok || at.sender == nil || at.sender.isFree() {
		return ctx, nil
	}
	return at.sender.open(ctx), nil
}

type incomingKey struct{}

// open begins a call on the newest stream. A rejected call begins, too, and must end soon: gRPC
// stops the timer of its deadline, which may be years away, only once a call has begun.
func (s *sender) open(ctx context.Context) context.Context {
	in := &incoming{sender: s, refused: s.admit(ctx)}
	if in.refused != nil {
		soon, cancel := context.WithTimeout(ctx, refusedTime)
		context.AfterFunc(ctx, cancel)
		ctx = soon
	}
	in.ctx = context.WithValue(ctx, incomingKey{}, in)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone || s.isFree() {
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

// awaitsData records that a data frame has begun and is incomplete, or empty.
func (s *sender) awaitsData() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.gone {
		s.lookLocked()
	}
}

// lookLocked schedules look while a request is incomplete.
func (s *sender) lookLocked() {
	if s.timer == nil {
		s.timer = time.AfterFunc(unfinishedBeat, s.look)
	}
}

// forgetLocked removes calls that ended before their request was complete.
func (s *sender) forgetLocked() {
	for _, in := range s.calls {
		if in.ctx.Err() != nil {
			in.endLocked()
		}
	}
	s.lived = len(s.calls)
}

// endLocked removes the whole request from the account: the call has consumed it, or has ended.
func (in *incoming) endLocked() {
	delete(in.sender.calls, in.stream)
	in.sender.addLocked(-in.begun - in.cost)
	in.begun, in.cost, in.whole = 0, 0, 0
}

// addLocked adds bytes, which may be negative.
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

// check ends the sender if it has too much, and others if all together have too much.
func (s *sender) check() error {
	s.mu.Lock()
	most := s.most()
	if s.held > most {
		s.forgetLocked()
	}
	tooMuch := most > 0 && s.held > most
	s.mu.Unlock()
	if tooMuch {
		s.fail(errUnfinished)
		return errUnfinished
	}
	for s.all.isFull() {
		worst := s.all.worst()
		if worst == nil || !s.all.isFull() {
			break
		}
		worst.fail(errUnfinished)
	}
	return nil
}

func (all *Requests) isFull() bool {
	return all.held.Load() > unfinishedAll*max(all.most, all.mostStranger)
}

// worst returns the sender that has had the most for longest, nil if there is none.
func (all *Requests) worst() (worst *sender) {
	now := time.Now()
	most := 0.0
	all.mu.Lock()
	defer all.mu.Unlock()
	for s := range all.senders {
		s.mu.Lock()
		s.forgetLocked()
		if long := now.Sub(s.since) + time.Second; float64(s.held)*long.Seconds() > most {
			worst, most = s, float64(s.held)*long.Seconds()
		}
		s.mu.Unlock()
	}
	return worst
}

// fail ends the sender.
func (s *sender) fail(why error) {
	if !s.close() {
		return
	}
	s.all.warnings.Do(func() {
		s.all.log.Warn("closed a connection", "remote", s.from, "error", why)
	})
	s.end(why)
}

// close removes the sender. It reports whether it was there.
func (s *sender) close() bool {
	s.all.mu.Lock()
	if _, ok := s.all.senders[s]; ok {
		delete(s.all.senders, s)
		s.leaveAllLocked()
	}
	s.all.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return false
	}
	s.dropLocked()
	s.gone = true
	close(s.done)
	return true
}

// dropLocked removes all requests.
func (s *sender) dropLocked() {
	s.addLocked(-s.held)
	if s.timer != nil {
		s.timer.Stop() // or it would keep the sender reachable
		s.timer = nil
	}
	clear(s.calls)
}

// look counts a beat for each request that waits for the sender.
func (s *sender) look() {
	s.mu.Lock()
	s.forgetLocked()
	s.timer = nil
	late, more := false, false
	most := unfinishedBeats
	if !s.known.Load() {
		most = strangerBeats
	}
	for _, in := range s.calls {
		switch {
		case in.isStream && in.begun == 0 && (in.spoke || most == unfinishedBeats):
			continue // an idle stream
		case !in.isStream || in.isReading:
			in.beats++
			late = late || in.beats > most
		}
		more = true
	}
	if more && !late && !s.gone {
		s.lookLocked()
	}
	s.mu.Unlock()
	if late {
		s.fail(errTooSlow)
	}
}

// begins records the headers of a stream.
func (s *sender) begins(stream uint32) {
	s.mu.Lock()
	s.newest = stream
	s.mu.Unlock()
}

// frame records the beginning of a data frame. It returns an error if the sender has too much.
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

// data records data of a frame.
func (s *sender) data(stream uint32, b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if in := s.calls[stream]; in != nil {
		s.opens += in.dataLocked(b)
		if in.begun > 0 {
			s.lookLocked()
		}
	}
}

// dataLocked records data of a frame. It returns the number of messages that are complete with it.
func (in *incoming) dataLocked(b []byte) (messages int) {
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
			in.whole, in.spoke = in.whole+1, true
			in.cost += in.begun
			in.got, in.begun = 0, 0
			messages++
		}
	}
	return messages
}

// takenLocked records that the call has consumed a message. It costs as much as the average
// message.
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

// done records that the call has its whole request, or has ended.
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
		if in.refused != nil {
			return nil, in.refused
		}
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
	defer in.done()
	if in.refused != nil {
		return in.refused
	}
	in.sender.mu.Lock()
	in.isStream = true
	in.sender.mu.Unlock()
	return next(srv, &takingStream{s, in})
}

// takingStream tracks consumed messages.
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

// reads records that the call waits for a message, or that it has consumed one.
func (in *incoming) reads(waits bool) {
	in.sender.mu.Lock()
	defer in.sender.mu.Unlock()
	in.isReading, in.beats = waits, 0
	if !waits {
		in.takenLocked()
	}
}
