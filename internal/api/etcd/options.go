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

// Options configures the services. Zero values have the defaults given below, which are the same as
// in etcd unless stated otherwise.
type Options struct {
	// MaxRequestBytes is the maximum size of a request. The default is 1.5 MiB.
	MaxRequestBytes int
	// MaxTxnOps limits the number of conditions in a transaction and the number of operations in
	// each branch. The default is 128.
	MaxTxnOps int
	// MaxKeys is the maximum number of keys that this API can attach to a lease. The default is
	// 10,000. etcd has no limit.
	MaxKeys int
	// MaxConcurrentStreams limits the concurrent calls on one connection. The default is 16,384.
	// etcd has no limit.
	MaxConcurrentStreams uint32
	// ProgressInterval is the time between progress notifications of an idle watch. The default is
	// 10 minutes, and the minimum is 100 ms.
	ProgressInterval time.Duration
	// LeaderInterval is how often streams that require a leader check for one. The default is 1 s,
	// which is an election timeout.
	LeaderInterval time.Duration
	// MinPingInterval is the minimum time between a client's pings. More frequent pings count as
	// abuse. The default is 5 s.
	MinPingInterval time.Duration
	// PingInterval is how long a client can be silent before it is pinged. The default is 2 hours.
	// PingTimeout is how long it has to answer. The default is 20 s.
	PingInterval, PingTimeout time.Duration
	// Unary is the interceptor that runs before the services and counts metrics, for example. It must
	// recover panics. There is only one, because each interceptor in a chain costs every call a
	// closure. If it is nil, Panics recovers panics.
	Unary grpc.UnaryServerInterceptor
	// Stream holds the interceptors for streams, outermost first.
	Stream []intercept.Stream
	// Admit rejects a request on a stream if its caller exceeds its rate limit. If it is nil, no
	// requests are rejected.
	Admit func(context.Context) error
	// Renewals limits the load from one principal's renewals. If it is nil, the services create
	// their own.
	Renewals *api.Renewals
	// Panics recovers panics in calls. If it is nil, a panic ends the process.
	Panics *listen.Panics
	// Answers limits the unread responses of each connection. Each connection must be accepted with
	// [listen.Credentials] created from the same Answers. If Answers is nil, one limit applies to
	// all connections together.
	Answers *listen.Answers
	// Requests limits the bytes of incomplete requests. Like Answers, it applies to each
	// connection. If it is nil, there is no limit.
	Requests *listen.Requests
	// Codec replaces the codec for a server that provides other services. It is nil for these
	// services.
	Codec encoding.CodecV2
	// When Stop is closed, all streams and waiting calls end, and the health service reports "not
	// serving". It may be nil.
	Stop <-chan struct{}
}

const (
	// requestOverhead is how far a message can exceed MaxRequestBytes before gRPC itself rejects
	// it. The margin lets most oversized requests receive a better error message.
	requestOverhead = 512 << 10

	// maxHeaderList limits the size of a call's headers, in bytes. A single byte can stand for a
	// long header (RFC 7541). With gRPC's default limit of 16 MiB, a few bytes could exhaust the
	// memory.
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
	if o.Unary == nil {
		o.Unary = o.Panics.Unary
	}
	if o.Answers == nil {
		o.Answers = listen.NewAnswers(slog.New(slog.DiscardHandler))
	}
	return o
}

// ServerOptions returns the options that a gRPC server needs to provide these services. They are
// tuned for many small calls and for messages of the configured size.
func ServerOptions(o Options) []grpc.ServerOption {
	o = o.withDefaults()
	return append(o.Requests.Options(o.unary()),
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
		grpc.ChainStreamInterceptor(append(intercept.Wholes(o.streams()), o.Panics.Stream)...),
	)
}

// Relayed returns the options for serving calls through a relay. They are served like calls on a
// connection, except that requests are not counted, because the relay already does that.
func Relayed(o Options) relayed.Options {
	o = o.withDefaults()
	out := relayed.Options{
		Codec: o.Answers.Codec(o.codec()), MaxMessage: o.maxMessage(), Panics: o.Panics, Stop: o.Stop,
		Account: o.Answers.ConnContext,
	}
	out.Unary = []grpc.UnaryServerInterceptor{o.unary()}
	out.Stream = o.streams()
	return out
}

func (o Options) codec() encoding.CodecV2 { return o.Panics.Codec(o.Codec) }

// maxMessage returns the maximum size of a message that gRPC accepts.
func (o Options) maxMessage() int { return o.MaxRequestBytes + requestOverhead }

// unary returns the interceptor for unary calls.
func (o Options) unary() grpc.UnaryServerInterceptor {
	return o.Answers.Unary(func(
		ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler,
	) (any, error) {
		resp, err := o.Unary(ctx, req, info, next)
		return resp, api.Inform(err)
	})
}

// streams returns the interceptors for streams, outermost first, without the one that recovers
// panics.
func (o Options) streams() []intercept.Stream {
	return slices.Concat([]intercept.Stream{o.Answers.Stream, informStream}, o.Stream)
}

// DirectOptions returns the options for streams without HTTP/2. They correspond to ServerOptions.
func DirectOptions(o Options) direct.Options {
	o = o.withDefaults()
	return direct.Options{
		Credentials:  listen.Credentials(nil, o.Answers),
		Codec:        o.Answers.Codec(o.codec()),
		Interceptors: o.streams(),
		Panics:       o.Panics,
		MaxMessage:   o.maxMessage(),
		Requests:     o.Requests,
	}
}

// informStream adds details to the error returned by a stream of any service.
func informStream(
	s grpc.ServerStream, _ *grpc.StreamServerInfo,
) (grpc.ServerStream, intercept.Leave, error) {
	return s, api.Inform, nil
}

// until returns a context that ends when ctx or stop ends. If stop ends first, the returned context
// has stop's cause.
func until(ctx, stop context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(stop, func() { cancel(context.Cause(stop)) })
	return ctx, func() {
		unhook()
		cancel(nil)
	}
}

// causeOf returns err. If err only reports that ctx was canceled, why returns the cause instead,
// because only some waits return the cause.
func causeOf(ctx context.Context, err error) error {
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// stopping returns a context that ends when c is closed, with the cause api.ErrStopped. The given
// function is called afterwards.
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
