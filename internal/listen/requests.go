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
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/tap"
)

// Limits of [Requests].
const (
	// leastUnfinished is the lowest limit on a connection's unfinished requests. The limit is
	// higher if the largest allowed request exceeds 1/unfinishedPart of it.
	leastUnfinished = 64 << 20
	unfinishedPart  = 16
	// strangerPart is what that limit is divided by for strangers.
	strangerPart  = 4
	unfinishedAll = 4 // limit for all connections together, as a multiple of the limit for one
	// A request must be completed within unfinishedBeats beats, each of which lasts unfinishedBeat.
	// Beats are counted instead of time, so that clients are not blamed for a pause of this
	// process. The first message of a stranger's stream must arrive within strangerBeats.
	unfinishedBeat  = 5 * time.Second
	unfinishedBeats = 12
	strangerBeats   = 3
	// bodyRoom is how much of a body is read ahead while its call has messages to consume.
	bodyRoom = 1 << 20
)

var (
	errUnfinished = errors.New("unfinished requests use too much memory")
	errTooSlow    = errors.New("a request did not finish in time")
)

// Requests limits what clients can make a server keep before their calls are served. This includes
// incomplete messages, stream messages that a call has not consumed, and strangers' calls. gRPC
// limits what it keeps for each stream, but not the total, because it extends a connection's window
// as soon as bytes arrive. So without a limit, thousands of streams on one connection could fill
// the memory.
//
// A connection that holds too many bytes is closed. If all connections together hold too many, the
// connection that has held the most for the longest time is closed. A connection is also closed if
// one of its requests stays incomplete for a while. A stream's request can wait for its call,
// because unread responses might be blocking the call.
//
// It is safe for concurrent use.
type Requests struct {
	log *slog.Logger
	// most is the limit on a connection's unfinished bytes; 0 means no limit. mostStranger is the
	// limit for a stranger.
	most, mostStranger int64
	// known reports whether the caller of a call has logged in. If it is nil, callers do not have
	// to log in. strangerCalls limits the calls on a connection until a caller has logged in.
	known         func(context.Context) bool
	strangerCalls int
	mostCalls     int // limit on the calls of all strangers
	warnings      rate.Sometimes
	held          atomic.Int64  // unfinished bytes of all senders
	opens         *rate.Limiter // limits the rate at which all strangers together open calls

	mu        sync.Mutex // guards the fields below
	senders   map[*sender]struct{}
	strangers crowd // strangers' calls in progress, with their senders
	sites     *simplelru.LRU[string, *site]
}

// NewRequests returns Requests for a server whose largest request has the given size.
func NewRequests(largest int, log *slog.Logger) *Requests {
	most := max(leastUnfinished, unfinishedPart*int64(largest))
	return newRequests(most, most/strangerPart, log)
}

// BoundStrangers limits what clients can cost before they log in, including the number of calls per
// connection. The function known reports, without I/O, whether the caller of a new call has logged
// in. Until it returns true or [MarkLoggedIn] is called, the connection is a stranger.
// BoundStrangers returns its receiver.
func (all *Requests) BoundStrangers(calls int, known func(context.Context) bool) *Requests {
	all.strangerCalls, all.known = calls, known
	return all
}

// NewStrangers returns Requests that limit only strangers. Each of them can have this many
// unfinished bytes. All connections begin as strangers.
func NewStrangers(most int64, log *slog.Logger) *Requests {
	return newRequests(0, most, log).BoundStrangers(fewCalls, NoneKnown)
}

// Share limits the calls of all strangers together.
func (all *Requests) Share(calls int) *Requests {
	all.mostCalls = calls
	return all
}

// NoneKnown is an argument for BoundStrangers. It is for servers in which only MarkLoggedIn
// identifies clients that have logged in.
func NoneKnown(context.Context) bool { return false }

func newRequests(most, mostStranger int64, log *slog.Logger) *Requests {
	// fails only for a size that is not positive
	sites, _ := simplelru.NewLRU[string, *site](mostSites, nil)
	return &Requests{
		log: log, most: most, mostStranger: mostStranger, mostCalls: maxStrangerCalls,
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
	known atomic.Bool // whether it is no longer a stranger
	done  chan struct{}
	// Only the reading goroutine uses these fields: the number of calls and messages begun, and the
	// number of calls reset, since the last wait; and the stream of the latest headers.
	opens, resets int
	newest        uint32
	// marked reports whether MarkLoggedIn has nothing left to do.
	marked atomic.Bool

	// end is called once, if the sender holds too many bytes or is too slow.
	end func(why error)

	mu    sync.Mutex
	calls map[uint32]*incoming // calls whose request can continue, by stream
	lived int                  // number of calls left when ended calls were last removed
	held  int64
	since time.Time   // when it last began to hold any bytes
	timer *time.Timer // nil unless a request is incomplete, or was recently
	// looking reports whether timer is set. It changes only while mu is locked.
	looking atomic.Bool
	gone    bool

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

// isFree reports whether the sender has no limits.
func (s *sender) isFree() bool { return s.all.most == 0 && s.known.Load() }

// most returns the limit on the sender's unfinished bytes.
func (s *sender) most() int64 {
	if s.known.Load() {
		return s.all.most
	}
	return s.all.mostStranger
}

// incoming is a call and its request. It is also the context of a gRPC call, so that a call needs
// only one allocation here.
type incoming struct {
	// These fields do not change once the call is being served.
	context.Context
	sender  *sender
	stream  uint32
	header  metadata.MD // headers of a gRPC call; must not be changed
	account *account    // of the connection's responses; nil if they are not counted
	refused error       // why the call has been rejected; nil if it has not been

	answer call // response of a unary call; used only by the goroutine that serves it

	// The following fields are guarded by the sender's mu, except for the atomic ones.
	head      [5]byte      // header of a message
	got       int          // number of bytes in head
	left      int64        // bytes of the message, after its head, that have not arrived
	begun     int64        // cost of the incomplete message
	whole     int64        // number of complete messages that have not been consumed
	cost      int64        // cost of those messages
	isStream  bool         // the call has begun, and consumes successive messages
	spoke     bool         // a complete message has arrived
	isReading atomic.Bool  // the call is waiting for a message
	beats     atomic.Int64 // beats since it began to wait for the client
	// room, if not nil, receives a token when a message has been consumed.
	room chan struct{}
}

// frameCost returns how many bytes gRPC keeps for a data frame, according to its buffer classes.
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

// Options returns the options for a server whose connections use [Credentials] with these Requests.
// They include the interceptor for unary calls, with inner inside it, because a second one in a
// chain would cost every call a closure. The argument may be nil.
func (all *Requests) Options(inner grpc.UnaryServerInterceptor) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.InTapHandle(all.tap),
		grpc.ReadBufferSize(0), // frames must see the bytes before gRPC buffers them
		grpc.UnaryInterceptor(unary(inner)),
		grpc.ChainStreamInterceptor(all.stream),
	}
}

// gRPC calls tap after it has read the headers of a call and before it reads anything else. At that
// point, gRPC holds a lock on the connection, and no goroutine is serving the call yet.
func (all *Requests) tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	at, ok := remoteOf(ctx)
	if !ok || at.sender == nil || at.sender.isFree() {
		return ctx, nil
	}
	in := at.sender.open(ctx)
	in.account, in.header = at.account, info.Header
	return in, nil
}

type incomingKey struct{}

// Value implements context.Context.
func (in *incoming) Value(key any) any {
	switch key {
	case incomingKey{}:
		return in
	case callKey{}:
		if in.answer.account != nil {
			return &in.answer
		}
	}
	return in.Context.Value(key)
}

// open begins a call on the newest stream. A rejected call also begins, but must end soon. The
// reason is that gRPC stops the timer of a call's deadline, which might be years away, only if the
// call has begun.
func (s *sender) open(ctx context.Context) *incoming {
	in := &incoming{Context: ctx, sender: s, refused: s.admit(ctx)}
	if in.refused != nil {
		soon, cancel := context.WithTimeout(ctx, refusedTime)
		context.AfterFunc(ctx, cancel)
		in.Context = soon
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone || s.isFree() {
		return in
	}
	in.stream = s.newest
	s.calls[in.stream] = in
	if len(s.calls) > 2*s.lived+64 {
		s.forgetLocked()
	}
	s.lookLocked()
	return in
}

// awaitsData records that a data frame has begun and is incomplete or empty.
func (s *sender) awaitsData() {
	if s.looking.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.gone {
		s.lookLocked()
	}
}

// lookLocked schedules a call to look, which checks incomplete requests.
func (s *sender) lookLocked() {
	if s.timer == nil {
		s.timer = time.AfterFunc(unfinishedBeat, s.look)
		s.looking.Store(true)
	}
}

// forgetLocked removes calls that ended before their request was complete.
func (s *sender) forgetLocked() {
	for _, in := range s.calls {
		if in.Err() != nil {
			in.endLocked()
		}
	}
	s.lived = len(s.calls)
}

// endLocked removes the whole request from the account, because the call has consumed it or has
// ended.
func (in *incoming) endLocked() {
	delete(in.sender.calls, in.stream)
	in.sender.addLocked(-in.begun - in.cost)
	in.begun, in.cost, in.whole = 0, 0, 0
}

// addLocked adds a number of bytes, which can be negative.
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

// holdsTooMuchLocked reports whether the sender holds too many bytes.
func (s *sender) holdsTooMuchLocked() bool {
	most := s.most()
	if s.held > most {
		s.forgetLocked()
	}
	return most > 0 && s.held > most
}

// check ends the sender if it holds too many bytes. If all senders together hold too many, check
// ends other senders.
func (s *sender) check(tooMuch bool) error {
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

// worst returns the sender that has held the most bytes for the longest time, or nil if there is
// none.
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

// fail closes the sender and its connection.
func (s *sender) fail(why error) {
	if !s.close() {
		return
	}
	s.all.warnings.Do(func() {
		s.all.log.Warn("closed a connection", "remote", s.from, "error", why)
	})
	s.end(why)
}

// close removes the sender, and reports whether it was still registered.
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
		s.timer.Stop() // otherwise, the timer would keep the sender reachable
		s.timer = nil
		s.looking.Store(false)
	}
	clear(s.calls)
}

// look counts a beat for each request that is waiting for the client.
func (s *sender) look() {
	s.mu.Lock()
	s.forgetLocked()
	s.timer = nil
	s.looking.Store(false)
	late, more := false, false
	most := int64(unfinishedBeats)
	if !s.known.Load() {
		most = strangerBeats
	}
	for _, in := range s.calls {
		switch {
		case in.isStream && in.begun == 0 && (in.spoke || most == unfinishedBeats):
			continue // an idle stream
		case !in.isStream || in.isReading.Load():
			late = in.beats.Add(1) > most || late
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

// frame records that a data frame of this size has begun with the data b. It returns an error if
// the sender holds too many bytes.
func (s *sender) frame(stream uint32, size int, b []byte) error {
	s.mu.Lock()
	if in := s.calls[stream]; in != nil {
		if in.begun == 0 {
			in.beats.Store(0)
		}
		cost := frameCost(size)
		in.begun += cost
		s.addLocked(cost)
		s.dataLocked(in, b)
	}
	tooMuch := s.holdsTooMuchLocked()
	s.mu.Unlock()
	return s.check(tooMuch)
}

// data records data that belongs to a frame.
func (s *sender) data(stream uint32, b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if in := s.calls[stream]; in != nil {
		s.dataLocked(in, b)
	}
}

func (s *sender) dataLocked(in *incoming, b []byte) {
	s.opens += in.dataLocked(b)
	if in.begun > 0 && len(b) > 0 {
		s.lookLocked()
	}
}

// dataLocked records data that belongs to a frame. It returns the number of messages that the data
// completes.
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

// taken records that the call has consumed a message. The message is assumed to have the average
// cost.
func (in *incoming) taken() {
	in.sender.mu.Lock()
	defer in.sender.mu.Unlock()
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

// requestOf returns the request of a call, or nil if it is not counted.
func requestOf(ctx context.Context) *incoming {
	in, _ := ctx.Value(incomingKey{}).(*incoming)
	return in
}

// done records that the call has received its whole request, or has ended.
func (in *incoming) done() {
	in.sender.mu.Lock()
	defer in.sender.mu.Unlock()
	in.endLocked()
}

// Header returns the values of a header of a gRPC call. The key must be in lower case, and the
// caller must not change the values. If the header is absent, which is the usual case, Header is
// much faster than metadata.ValueFromIncomingContext.
func Header(ctx context.Context, key string) []string {
	if in := requestOf(ctx); in != nil && in.header != nil {
		return in.header[key]
	}
	return metadata.ValueFromIncomingContext(ctx, key)
}

// unary returns the interceptor for unary calls. inner, which may be nil, runs inside it.
func unary(inner grpc.UnaryServerInterceptor) grpc.UnaryServerInterceptor {
	return func(
		ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler,
	) (any, error) {
		if in := requestOf(ctx); in != nil {
			in.done()
			if in.refused != nil {
				return nil, in.refused
			}
		}
		return within(inner, ctx, req, info, next)
	}
}

// within calls next inside an interceptor, which may be nil.
func within(
	i grpc.UnaryServerInterceptor, ctx context.Context, req any, info *grpc.UnaryServerInfo,
	next grpc.UnaryHandler,
) (any, error) {
	if i == nil {
		return next(ctx, req)
	}
	return i(ctx, req, info, next)
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

// takingStream tracks which messages have been consumed.
type takingStream struct {
	grpc.ServerStream
	in *incoming
}

// RecvMsg implements grpc.ServerStream.
func (s *takingStream) RecvMsg(m any) error {
	s.in.beats.Store(0)
	s.in.isReading.Store(true)
	err := s.ServerStream.RecvMsg(m)
	s.in.isReading.Store(false)
	s.in.taken()
	return err
}
