package server

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api/native"
	"leasehold.dev/internal/storage"
	"leasehold.dev/internal/trace"
	"leasehold.dev/internal/trace/otlp"
	"leasehold.dev/internal/version"
)

// tracer makes spans of the calls that are sampled, after the fact: while they are under way only
// instants are noted. Its methods do nothing if it is nil, which is so unless spans are wanted.
type tracer struct {
	out  *otlp.Exporter
	rate trace.Rate
	log  places
	// latest is a call that waits for the core: the exemplar of what the core and the disk take
	// meanwhile.
	latest atomic.Pointer[tracedCall]
}

// newTracer returns nil if no spans are wanted.
func newTracer(cfg Config, id storage.Identity) (*tracer, error) {
	c := cfg.Trace
	if c.Endpoint == "" {
		return nil, nil
	}
	out, err := otlp.New(otlp.Options{
		Settings: c, Logger: cfg.Logger, Release: version.Version,
		Resource: []trace.Attribute{
			{Key: "service.name", Value: c.ServiceName},
			{Key: "service.version", Value: version.Version},
			{Key: "service.instance.id", Value: fmt.Sprintf("%x", id.Member)},
			{Key: "leasehold.member", Value: strings.ToValidUTF8(cfg.Name, "?")},
			{Key: "leasehold.cluster", Value: fmt.Sprintf("%x", id.Cluster)},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	return &tracer{out: out, rate: trace.NewRate(c.SampleRate)}, nil
}

// collectors are its metrics.
func (t *tracer) collectors() []prometheus.Collector {
	if t == nil {
		return nil
	}
	return t.out.Collectors()
}

// start begins to send spans. What it returns ends that, when the last ones are sent.
func (t *tracer) start() (stop func()) {
	if t == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { t.out.Run(ctx) })
	return func() { cancel(); wg.Wait() }
}

type tracedKey struct{}

// unary is a grpc.UnaryServerInterceptor.
func (t *tracer) unary(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler,
) (any, error) {
	call := t.begin(ctx, info.FullMethod)
	if call == nil {
		return next(ctx, req)
	}
	resp, err := next(call.In(ctx), req)
	call.End(err)
	return resp, err
}

// parentOf returns what the headers of a call say of its trace.
func parentOf(ctx context.Context) (trace.Parent, bool) {
	headers := metadata.ValueFromIncomingContext(ctx, "traceparent")
	if len(headers) != 1 {
		return trace.Parent{}, false // of several none counts
	}
	return trace.Parse(headers[0])
}

// takes reports whether a call is sampled. With a parent, which ok says that there is, its caller
// decides, otherwise the rate; then the call begins a trace.
func (t *tracer) takes(parent *trace.Parent, ok bool) bool {
	if ok {
		return parent.Sampled
	}
	if !t.rate.Takes(rand.Uint64()) {
		return false
	}
	parent.Trace = trace.NewID(rand.Uint64(), rand.Uint64())
	return true
}

// begin returns nil for a call that is not sampled.
func (t *tracer) begin(ctx context.Context, method string) *tracedCall {
	parent, ok := parentOf(ctx)
	if !t.takes(&parent, ok) {
		return nil
	}
	if ok {
		parent.State = trace.State(metadata.ValueFromIncomingContext(ctx, "tracestate"))
	}
	return t.newCall(parent, method)
}

// request is begin for a request of a stream of leasehold.v1. Those that last as long as their
// clients have no spans, and renewals, which never wait for the log.
func (t *tracer) request(r *pb.Request) native.Traced {
	switch r.Body.(type) {
	case nil, *pb.Request_Cancel, *pb.Request_Renew, *pb.Request_Watch, *pb.Request_Events,
		*pb.Request_Session, *pb.Request_Cache, *pb.Request_CacheAck:
		return nil
	}
	parent, ok := trace.Parse(r.Traceparent)
	if !t.takes(&parent, ok) {
		return nil
	}
	name := string(r.ProtoReflect().WhichOneof(requestBody).Name())
	return t.newCall(parent, pb.StreamService_Open_FullMethodName+"/"+name)
}

// newCall begins a call with a name such as /SERVICE/METHOD.
func (t *tracer) newCall(parent trace.Parent, name string) *tracedCall {
	now := time.Now()
	name = strings.TrimPrefix(name, "/")
	service, method, _ := strings.Cut(name, "/")
	return &tracedCall{
		tracer: t, begun: now.UnixNano(), epoch: int64(now.Sub(epoch)),
		span: trace.Span{
			Trace: parent.Trace, ID: trace.NewSpanID(rand.Uint64()), Parent: parent.Span,
			State: parent.State, Name: name, Kind: trace.Server, Start: now.UnixNano(),
			Attributes: []trace.Attribute{
				{Key: "rpc.system", Value: "grpc"},
				{Key: "rpc.service", Value: service},
				{Key: "rpc.method", Value: method},
			},
		},
	}
}

// observe observes a duration, with a call that waited meanwhile as the exemplar, if there is one.
func (t *tracer) observe(h prometheus.Histogram, d time.Duration) {
	if t != nil {
		if call := t.latest.Load(); call != nil {
			h.(prometheus.ExemplarObserver).ObserveWithExemplar(d.Seconds(),
				prometheus.Labels{"trace_id": call.span.Trace.String()})
			return
		}
	}
	h.Observe(d.Seconds())
}

// tracedCall is a call of which spans are made.
type tracedCall struct {
	tracer *tracer
	begun  int64 // since 1970
	epoch  int64 // the same since epoch, which no change of the clock moves
	span   trace.Span

	mu    sync.Mutex // guards what follows
	parts []trace.Span
	last  int64 // when the core has answered last, since epoch; 0 if it has not
	over  bool
}

// maxParts bounds the spans of a call: one that asks the core very often tells of the beginning.
const maxParts = 64

// part adds a span of what a call waited for, from one instant since epoch to another, unless one
// is not known.
func (c *tracedCall) part(name string, from, to int64, more ...trace.Attribute) {
	if from == 0 || to == 0 || len(c.parts) >= maxParts {
		return
	}
	c.parts = append(c.parts, trace.Span{
		Trace: c.span.Trace, ID: trace.NewSpanID(rand.Uint64()), Parent: c.span.ID,
		State: c.span.State, Name: name, Kind: trace.Internal,
		Start: c.at(from), End: c.at(max(from, to)), Attributes: more,
	})
}

// at returns an instant since epoch as one since 1970.
func (c *tracedCall) at(instant int64) int64 { return c.begun + instant - c.epoch }

// faults are the codes that mean that the server failed, and not its caller.
var faults = map[codes.Code]bool{
	codes.Unknown: true, codes.DeadlineExceeded: true, codes.Unimplemented: true,
	codes.Internal: true, codes.Unavailable: true, codes.DataLoss: true,
}

// In implements native.Traced.
func (c *tracedCall) In(ctx context.Context) context.Context {
	return context.WithValue(ctx, tracedKey{}, c)
}

// End ends a call, and hands its spans over.
func (c *tracedCall) End(err error) {
	now := sinceEpoch()
	code := status.Code(err)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return
	}
	c.over = true
	c.tracer.latest.CompareAndSwap(c, nil)
	c.part("answer", c.last, now)
	c.span.End, c.span.Failed = c.at(now), faults[code]
	c.span.Attributes = append(c.span.Attributes,
		trace.Attribute{Key: "rpc.grpc.status_code", Value: int64(code)})
	c.tracer.out.Add(append(c.parts, c.span)...)
}
