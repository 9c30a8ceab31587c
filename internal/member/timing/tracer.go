// Package timing measures how long calls wait for the queue, caches, the log and confirm rounds. It
// creates OpenTelemetry spans for these times, and logs slow calls. The core and the log writer
// record when log indexes reach each stage. When a call has been answered, it looks up the times of
// its own entry.
package timing

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api/native"
	"leasehold.dev/internal/replica"
	"leasehold.dev/internal/version"
)

// Tracer times calls. For traced calls, it creates spans for their parts. It logs other calls if
// they are slow. A nil Tracer times nothing.
type Tracer struct {
	provider trace.TracerProvider
	spans    trace.Tracer // nil if calls are not traced
	slow     *slowLog     // nil if slow calls are not logged
	log      places
	wg       sync.WaitGroup // waits for the goroutine that creates spans

	mu       sync.Mutex
	forwards []forwarded // commands without spans so far; non-empty while the goroutine runs
}

// mostForwards is the maximum number of commands that wait for their spans. Any further commands
// get no spans, just as OpenTelemetry drops spans if its exporter is too slow.
const mostForwards = 4096

// forwarded is a command that a member forwarded to this one.
type forwarded struct {
	parent replica.Trace
	from   uint64
	Stages
}

// Config selects what is timed.
type Config struct {
	// Provider, if not nil, receives the spans of calls. It must not block.
	Provider trace.TracerProvider
	// SlowAfter is the minimum duration of a call that is logged. If it is 0, no calls are logged.
	SlowAfter time.Duration
	Logger    *slog.Logger
}

// New returns a Tracer, or nil if nothing should be timed.
func New(c Config) *Tracer {
	t := &Tracer{slow: newSlowLog(c.SlowAfter, c.Logger), provider: c.Provider}
	if c.Provider != nil {
		t.spans = c.Provider.Tracer("leasehold.dev/server",
			trace.WithInstrumentationVersion(version.Version))
	}
	if t.spans == nil && t.slow == nil {
		return nil
	}
	return t
}

// Close waits until all spans have been created, and logs how many slow calls were omitted.
func (t *Tracer) Close() {
	if t != nil {
		t.wg.Wait()
		t.slow.endWindow()
	}
}

// Traces reports whether calls can be traced.
func (t *Tracer) Traces() bool { return t != nil && t.spans != nil }

// propagator reads the headers traceparent and tracestate (W3C Trace Context).
var propagator = propagation.TraceContext{}

// GRPCOptions returns the options that create spans for gRPC calls, if calls are traced. The
// streams of leasehold.v1 and of relays have no spans, because each of their requests has one.
func (t *Tracer) GRPCOptions() []grpc.ServerOption {
	if !t.Traces() {
		return nil
	}
	return []grpc.ServerOption{grpc.StatsHandler(otelgrpc.NewServerHandler(
		otelgrpc.WithTracerProvider(t.provider),
		otelgrpc.WithPropagators(propagator),
		otelgrpc.WithFilter(func(i *stats.RPCTagInfo) bool {
			return i.FullMethodName != pb.StreamService_Open_FullMethodName &&
				i.FullMethodName != pb.RelayService_Relay_FullMethodName
		}),
	))}
}

// start starts the span of a call that is not visible to otelgrpc.
func (t *Tracer) start(
	ctx context.Context, carrier propagation.TextMapCarrier, name string,
) (context.Context, trace.Span) {
	name = strings.TrimPrefix(name, "/")
	return t.spans.Start(propagator.Extract(ctx, carrier), name,
		trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
			attribute.String("rpc.system.name", "grpc"), attribute.String("rpc.method", name)))
}

// end ends a span returned by start.
func end(s trace.Span, err error) {
	code := status.Code(err)
	s.SetAttributes(attribute.String("rpc.response.status_code", code.String()))
	if faults[code] {
		s.SetStatus(otelcodes.Error, "") // no text, because an error can contain the names of keys
	}
	s.End()
}

// faults are the codes for failures caused by the server and not by its caller.
var faults = map[codes.Code]bool{
	codes.Unknown: true, codes.DeadlineExceeded: true, codes.Unimplemented: true,
	codes.Internal: true, codes.Unavailable: true, codes.DataLoss: true,
}

// headers implements propagation.TextMapCarrier.
type headers metadata.MD

func (h headers) Get(key string) string { return strings.Join(metadata.MD(h).Get(key), ",") }
func (h headers) Set(string, string)    {}
func (h headers) Keys() []string        { return nil }

// Relayed is a grpc.UnaryServerInterceptor for calls through relays.
func (t *Tracer) Relayed(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler,
) (any, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	ctx, span := t.start(ctx, headers(md), info.FullMethod)
	resp, err := next(ctx, req)
	end(span, err)
	return resp, err
}

// Begin starts timing a call. It returns nil if the call does not need to be timed.
func (t *Tracer) Begin(ctx context.Context, method string) *Call {
	if t == nil {
		return nil
	}
	traced := t.spans != nil && trace.SpanFromContext(ctx).IsRecording()
	if t.slow == nil && !traced {
		return nil
	}
	return &Call{
		Context: ctx, tracer: t, name: method, begun: sinceEpoch(), traced: traced,
	}
}

var requestBody = (*pb.Request)(nil).ProtoReflect().Descriptor().Oneofs().ByName("body")

// Request starts tracing a request of a leasehold.v1 stream. It returns nil if the request is not
// sampled. If a request lasts as long as its client, it is traced only until its first response.
// Lease events and the initial session are not traced.
func (t *Tracer) Request(r *pb.Request) native.Traced {
	switch r.Body.(type) {
	case nil, *pb.Request_Cancel, *pb.Request_Events, *pb.Request_CacheAck, *pb.Request_Session:
		return nil
	}
	name := pb.StreamService_Open_FullMethodName + "/" +
		string(r.ProtoReflect().WhichOneof(requestBody).Name())
	ctx, span := t.start(context.Background(),
		propagation.MapCarrier{"traceparent": r.Traceparent}, name)
	if !span.IsRecording() {
		return nil
	}
	return &Call{
		Context: ctx, tracer: t, name: name, begun: sinceEpoch(), traced: true, own: true,
	}
}

// Ask returns the Stages for a request that the call in ctx is about to send to the core.
func (t *Tracer) Ask(ctx context.Context) Stages {
	if t == nil {
		return Stages{}
	}
	c, _ := ctx.Value(tracedKey{}).(*Call)
	if c == nil {
		return Stages{}
	}
	return Stages{call: c, requested: sinceEpoch()}
}

// Trace returns the trace to send to the leader with a command. It returns nil if the call is not
// sampled.
func (s *Stages) Trace() *replica.Trace {
	if s.call == nil || !s.call.traced {
		return nil
	}
	c := trace.SpanContextFromContext(s.call.Context)
	if !c.IsSampled() {
		return nil
	}
	return &replica.Trace{ID: c.TraceID(), Span: c.SpanID()}
}

// Arrived records when a message with traced commands arrived.
func (t *Tracer) Arrived(m *replica.Message) {
	if m.Forward != nil && len(m.Forward.Traces) > 0 && t.Traces() {
		m.Forward.Arrived = sinceEpoch()
	}
}

// Led queues the sampled commands that other members have forwarded, so that the leader's spans for
// them are created. The core calls Led, so another goroutine creates the spans.
func (t *Tracer) Led(list []*replica.Proposal) {
	if !t.Traces() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	idle := len(t.forwards) == 0
	for _, p := range list {
		s := Stages{
			requested: p.Arrived, leads: true, wait: p.Wait, through: t.log.instant(p.Wait.Until),
			entryTimes: t.log.times(p.Index, p.Arrived),
		}
		if s.requested != 0 && s.applied != 0 && len(t.forwards) < mostForwards {
			t.forwards = append(t.forwards, forwarded{*p.Trace, p.From(), s})
		}
	}
	if idle && len(t.forwards) > 0 {
		t.wg.Go(t.makeLeaders)
	}
}

// makeLeaders creates the leader's spans until none are left to create.
func (t *Tracer) makeLeaders() {
	for done := 0; ; {
		t.mu.Lock()
		t.forwards = slices.Delete(t.forwards, 0, done)
		list := slices.Clone(t.forwards)
		t.mu.Unlock()
		if done = len(list); done == 0 {
			return
		}
		for i := range list {
			t.leader(&list[i])
		}
	}
}

// leader creates the leader's span for a command forwarded by another member.
func (t *Tracer) leader(f *forwarded) {
	ctx, span := t.spans.Start(trace.ContextWithRemoteSpanContext(context.Background(),
		trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: f.parent.ID, SpanID: f.parent.Span, TraceFlags: trace.FlagsSampled,
		})), "leader", trace.WithSpanKind(trace.SpanKindServer),
		trace.WithTimestamp(wall(f.requested)),
		trace.WithAttributes(attribute.String("leasehold.from", fmt.Sprintf("%x", f.from))))
	c := &Call{Context: ctx, tracer: t, traced: span.IsRecording()}
	f.closeCommand(c)
	c.makeSpans()
	span.End(trace.WithTimestamp(wall(f.applied)))
}
