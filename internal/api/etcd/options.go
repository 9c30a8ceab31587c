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

// Options say how the services are served. What is zero has the default named
// here, which is etcd's.
type Options struct {
	// MaxRequestBytes bounds a request: 1.5 MiB.
	MaxRequestBytes int
	// MaxTxnOps bounds the conditions, and the operations of each branch, of a
	// transaction: 128.
	MaxTxnOps int
	// MaxKeys is how many keys a lease may have that are attached by this API: 10,000. In etcd
	// there is no bound.
	MaxKeys int
	// MaxConcurrentStreams bounds the calls under way on one connection: 16,384. In etcd
	// there is no bound.
	MaxConcurrentStreams uint32
	// ProgressInterval is the time between the progress notifications of a watch
	// on which nothing happens: 10 minutes, at least 100 ms.
	ProgressInterval time.Duration
	// LeaderInterval is how often streams that want a leader look whether there is
	// one: 1 s, an election timeout.
	LeaderInterval time.Duration
	// MinPingInterval is the shortest time between a client's pings that is not
	// held to be abuse: 5 s.
	MinPingInterval time.Duration
	// PingInterval is how often a client that says nothing is asked whether it is
	// there: 2 hours. PingTimeout is how long it may take to answer: 20 s.
	PingInterval, PingTimeout time.Duration
	// Unary and Stream are called before the services, outermost first: metrics
	// are counted there.
	Unary  []grpc.UnaryServerInterceptor
	Stream []intercept.Stream
	// Admit refuses a request on a stream if its caller makes too many. Nil refuses none.
	Admit func(context.Context) error
	// Renewals bounds what the renewals of one principal cost. Nil: an own bound.
	Renewals *api.Renewals
	// Panics ends the calls that panic. Nil ends none: the process does.
	Panics *listen.Panics
	// Answers bounds what waits for clients to read it, of the connections that it was given
	// as [listen.Credentials]. Nil: of all together.
	Answers *listen.Answers
	// Requests bounds what is kept of requests that are not complete, of connections as Answers
	// does. Nil: of none.
	Requests *listen.Requests
	// Codec is that of a server of other services; nil for these.
	Codec encoding.CodecV2
	// Stop, when it is closed, ends all streams and waits, and turns the health
	// service to "not serving". Nil never ends them.
	Stop <-chan struct{}
}

const (
	// requestOverhead is what a message may be longer than MaxRequestBytes before
	// gRPC itself refuses it, so that most are refused with a better text.
	requestOverhead = 512 << 10

	// maxHeaderList bounds the headers of a call. A byte can stand for a long one (RFC 7541),
	// so that the default of gRPC, 16 MiB, lets few bytes fill the memory.
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

// ServerOptions returns the options that the gRPC server of these services
// must be made with, for messages of the size of ours and many small calls.
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

// Relayed returns options with which calls that a relay carries are served as those of connections
// are, but for the accounts of connections.
func Relayed(o Options) relayed.Options {
	o = o.withDefaults()
	out := relayed.Options{
		Codec: o.codec(), MaxMessage: o.maxMessage(), Panics: o.Panics, Stop: o.Stop,
	}
	out.Unary, out.Stream = o.interceptors()
	return out
}

func (o Options) codec() encoding.CodecV2 { return o.Panics.Codec(o.Codec) }

// maxMessage bounds the messages that gRPC takes.
func (o Options) maxMessage() int { return o.MaxRequestBytes + requestOverhead }

// interceptors returns what is between a call and its service, but what takes panics of streams.
func (o Options) interceptors() ([]grpc.UnaryServerInterceptor, []intercept.Stream) {
	return slices.Concat([]grpc.UnaryServerInterceptor{informUnary}, o.Unary,
			[]grpc.UnaryServerInterceptor{o.Panics.Unary}),
		slices.Concat([]intercept.Stream{informStream}, o.Stream)
}

// DirectOptions are to streams without HTTP/2 what ServerOptions are to a gRPC server.
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

// informUnary gives the error of a call, of whichever service, its details.
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

// why returns err or, if that says no more than that ctx has ended, what ended it: of those
// who wait with it, some return its cause and some do not.
func why(ctx context.Context, err error) error {
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// stopping returns a context that ends, with api.ErrStopped, when c is closed;
// then is called after that.
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
