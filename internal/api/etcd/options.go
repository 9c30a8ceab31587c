package etcd

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/keepalive"

	"leasehold.dev/internal/api"
	"leasehold.dev/internal/api/relayed"
	"leasehold.dev/internal/direct"
	"leasehold.dev/internal/intercept"
	"leasehold.dev/internal/listen"
)

// Options configure the services. Zero values have the defaults below, which are etcd's.
type Options struct {
	// MaxRequestBytes bounds a request: 1.5 MiB.
	MaxRequestBytes int
	// MaxTxnOps bounds the conditions, and the operations of each branch, of a
	// transaction: 128.
	MaxTxnOps int
	// MaxKeys is how many keys a lease may have when this API attaches one: 10,000. etcd has no
	// bound.
	MaxKeys int
	// MaxConcurrentStreams bounds the calls in progress on one connection: 16,384. etcd has no
	// bound.
	MaxConcurrentStreams uint32
	// ProgressInterval is the time between progress notifications of an idle watch: 10 minutes, at
	// least 100 ms.
	ProgressInterval time.Duration
	// LeaderInterval is how often streams that require a leader check for one: 1 s, an election
	// timeout.
	LeaderInterval time.Duration
	// MinPingInterval is the shortest time between a client's pings that does not count as abuse: 5
	// s.
	MinPingInterval time.Duration
	// PingInterval is how often a silent client is pinged: 2 hours. PingTimeout is how long it may
	// take to answer: 20 s.
	PingInterval, PingTimeout time.Duration
	// Unary and Stream run before the services, outermost first; metrics are counted there.
	Unary  []grpc.UnaryServerInterceptor
	Stream []intercept.Stream
	// Admit rejects a request on a stream if its caller makes too many. Nil rejects none.
	Admit func(context.Context) error
	// Renewals bounds what the renewals of one principal cost. Nil means a separate bound.
	Renewals *api.Renewals
	// Panics recovers calls that panic. With nil the process ends.
	Panics *listen.Panics
	// Answers bounds the unread answers of each connection accepted with [listen.Credentials] made
	// from it. Nil means one bound for all connections together.
	Answers *listen.Answers
	// Requests bounds the bytes of incomplete requests, per connection like Answers. Nil means no
	// bound.
	Requests *listen.Requests
	// Codec is used by a server of other services; nil for these.
	Codec encoding.CodecV2
	// Stop, when closed, ends all streams and waits, and turns the health service to "not serving".
	// Nil never ends them.
	Stop <-chan struct{}
}

const (
	// requestOverhead is how much a message may exceed MaxRequestBytes before gRPC itself rejects
	// it, so that most get a better error text.
	requestOverhead = 512 << 10

	// maxHeaderList bounds the headers of a call. A single byte can stand for a long header (RFC
	// 7541), so with gRPC's default of 16 MiB, few bytes could fill the memory.
	maxHeaderList = 16 << 10

	minProgressInterval = 100 * time.Millisecond
)

func or[T int | uint32 | time.Duration](v, def T) T {
	if v <= 0 {
		return def
	}
	return v
}

func (o Options) withDefaults() Options {
	o.MaxRequestBytes = or(o.MaxRequestBytes, 3<<19)
	o.MaxTxnOps = or(o.MaxTxnOps, 128)
	o.MaxKeys = or(o.MaxKeys, 10_000)
	o.MaxConcurrentStreams = or(o.MaxConcurrentStreams, 1<<14)
	o.ProgressInterval = max(or(o.ProgressInterval, 10*time.Minute), minProgressInterval)
	o.LeaderInterval = or(o.LeaderInterval, time.Second)
	o.MinPingInterval = or(o.MinPingInterval, 5*time.Second)
	o.PingInterval = or(o.PingInterval, 2*time.Hour)
	o.PingTimeout = or(o.PingTimeout, 20*time.Second)
	if o.Renewals == nil {
		o.Renewals = api.NewRenewals()
	}
	if o.Admit == nil {
		o.Admit = func(context.Context) error { return nil }
	}
	if o.Requests == nil {
		o.Requests = listen.NewRequests(o.MaxRequestBytes, slog.New(slog.DiscardHandler))
	}
	if o.Codec == nil {
		o.Codec = newCodec()
	}
	if o.Answers == nil {
		o.Answers = listen.NewAnswers(slog.New(slog.DiscardHandler))
	}
	return o
}

// ServerOptions returns the options that a gRPC server of these services requires, for messages of
// this size and many small calls.
func ServerOptions(o Options) []grpc.ServerOption {
	o = o.withDefaults()
	unary, streams := o.interceptors()
	return append(o.Requests.Options(),
		grpc.ForceServerCodecV2(o.Answers.Codec(o.codec())),
		grpc.MaxRecvMsgSize(o.maxMessage()),
		grpc.MaxSendMsgSize(math.MaxInt32),
		grpc.MaxHeaderListSize(maxHeaderList),
		grpc.MaxConcurrentStreams(o.MaxConcurrentStreams),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: o.MinPingInterval}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time: o.PingInterval, Timeout: o.PingTimeout,
		}),
		grpc.NumStreamWorkers(streamWorkers()),
		grpc.WriteBufferSize(128<<10),
		grpc.InitialWindowSize(1<<20),
		grpc.InitialConnWindowSize(1<<20),
		grpc.ChainUnaryInterceptor(slices.Concat(
			[]grpc.UnaryServerInterceptor{o.Answers.Unary}, unary)...),
		grpc.ChainStreamInterceptor(append(intercept.Wholes(slices.Concat(
			[]intercept.Stream{o.Answers.Stream}, streams)), o.Panics.Stream)...),
	)
}

// Relayed returns options with which calls through a relay are served like calls on a connection,
// except that requests are not counted, because the relay counts them.
func Relayed(o Options) relayed.Options {
	o = o.withDefaults()
	out := relayed.Options{
		Codec: o.Answers.Codec(o.codec()), MaxMessage: o.maxMessage(), Panics: o.Panics, Stop: o.Stop,
		Account: o.Answers.ConnContext,
	}
	unary, streams := o.interceptors()
	out.Unary = append([]grpc.UnaryServerInterceptor{o.Answers.Unary}, unary...)
	out.Stream = append([]intercept.Stream{o.Answers.Stream}, streams...)
	return out
}

func (o Options) codec() encoding.CodecV2 { return o.Panics.Codec(o.Codec) }

// maxMessage bounds the messages that gRPC accepts.
func (o Options) maxMessage() int { return o.MaxRequestBytes + requestOverhead }

// interceptors returns the interceptors between a call and its service, except the one that
// recovers panics of streams.
func (o Options) interceptors() ([]grpc.UnaryServerInterceptor, []intercept.Stream) {
	return slices.Concat([]grpc.UnaryServerInterceptor{informUnary}, o.Unary,
			[]grpc.UnaryServerInterceptor{o.Panics.Unary}),
		slices.Concat([]intercept.Stream{informStream}, o.Stream)
}

// DirectOptions returns the options for streams without HTTP/2 that correspond to ServerOptions for
// a gRPC server.
func DirectOptions(o Options) direct.Options {
	o = o.withDefaults()
	_, streams := o.interceptors()
	return direct.Options{
		Credentials:  listen.Credentials(nil, o.Answers),
		Codec:        o.Answers.Codec(o.codec()),
		Interceptors: append([]intercept.Stream{o.Answers.Stream}, streams...),
		Panics:       o.Panics,
		MaxMessage:   o.maxMessage(),
		Requests:     o.Requests,
	}
}

// informUnary adds the details to the error of a call of any service.
func informUnary(
	ctx context.Context, r any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler,
) (any, error) {
	out, err := next(ctx, r)
	return out, api.Inform(err)
}

// informStream is informUnary for streams.
func informStream(
	s grpc.ServerStream, _ *grpc.StreamServerInfo,
) (grpc.ServerStream, intercept.Leave, error) {
	return s, api.Inform, nil
}

// until returns a context that ends with ctx or, with its cause, with stop.
func until(ctx, stop context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(stop, func() { cancel(context.Cause(stop)) })
	return ctx, func() {
		unhook()
		cancel(nil)
	}
}

// why returns err or, if err only reports that ctx has ended, the cause of that: only some waits
// return the cause.
func why(ctx context.Context, err error) error {
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// stopping returns a context that ends with api.ErrStopped when c is closed, and afterwards calls
// then.
func stopping(c <-chan struct{}, then func()) context.Context {
	if c == nil {
		return context.Background()
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	go func() {
		<-c
		cancel(api.ErrStopped)
		then()
	}()
	return ctx
}
