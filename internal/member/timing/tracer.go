// Package timing measures how long calls wait for the queue, caches, the log and confirm rounds. It
// makes OpenTelemetry spans of these times, and logs slow calls. The core and the writer of the log
// record when log indexes reach each stage; an answered call looks up its own entry.
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

// Tracer times traced calls, to make spans of their parts, and all other calls, to log slow ones. A
// nil Tracer times nothing.
type Tracer struct {
	provider trace.TracerProvider
	spans    trace.Tracer // nil if no call is traced
	slow     *slowLog     // nil if no call is logged
	log      places
	wg       sync.WaitGroup // of the goroutine that makes spans

	mu       sync.Mutex
	forwards []forwarded // their spans are still to be made; non-empty while the goroutine runs
}

// mostForwards limits the commands whose spans are still to be made. Further ones have no spans,
// just as OpenTelemetry drops spans if its exporter is too slow.
const mostForwards = 4096

// forwarded is a command that a member forwarded to this one.
type forwarded struct {
	parent replica.Trace
	from   uint64
	Stages
}

// Config selects what is timed.
type Config struct {
	// Provider receives the spans of calls, if it is not nil. It must not block.
	Provider trace.TracerProvider
	// SlowAfter is the minimum duration of calls that are logged; 0 logs none.
	SlowAfter time.Duration
	Logger    *slog.Logger
}

// New returns nil if nothing is to be timed.
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

// Close waits until all spans are made, and logs how many slow calls were omitted.
func (t *Tracer) Close() {
	if t != nil {
		t.wg.Wait()
		t.slow.endWindow()
	}
}

// Traces reports whether there can be traced calls.
func (t *Tracer) Traces() bool { return t != nil && t.spans != nil }

// propagator reads the headers traceparent and tracestate (W3C Trace Context).
var propagator = propagation.TraceContext{}

// GRPCOptions returns the options that make spans for gRPC's calls, if there are spans. The streams
// of leasehold.v1 and of relays have none: each of their requests has its own.
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

// start starts the span of a call that otelgrpc does not see.
func (t *Tracer) start(
	ctx context.Context, carrier propagation.TextMapCarrier, name string,
) (context.Context, trace.Span) {
	name = strings.TrimPrefix(name, "/")
	return t.spans.Start(propagator.Extract(ctx, carrier), name,
		trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
			attribute.String("rpc.system.name", "grpc"), attribute.String("rpc.method", name)))
}

// end ends a span of start.
func end(s trace.Span, err error) {
	code := status.Code(err)
	s.SetAttributes(attribute.String("rpc.response.status_code", code.String()))
	if faults[code] {
		s.SetStatus(otelcodes.Error, "") // without a text: errors may contain names of keys
	}
	s.End()
}

// faults are the codes for failures of the server, not of its caller.
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

// Begin starts to time a call. It returns nil if that is not needed.
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

// Request starts the trace of a request of a leasehold.v1 stream, or returns nil if it is not
// sampled. A request that lasts as long as its client is traced until its first response. Lease
// events and the initial session have no trace.
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

// Ask returns the Stages for a request to the core that is made now, for the call in ctx.
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

// Trace returns the trace that a command carries to the leader, or nil if its call is not sampled.
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

// Arrived records the arrival of a message that has commands with a trace.
func (t *Tracer) Arrived(m *replica.Message) {
	if m.Forward != nil && len(m.Forward.Traces) > 0 && t.Traces() {
		m.Forward.Arrived = sinceEpoch()
	}
}

// Led makes the leader's spans for commands that other members forwarded and sampled. The core
// calls it, so another goroutine makes them.
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

// makeLeaders makes spans until none are left to make.
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

// leader makes the leader's span for a command that a member forwarded.
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
