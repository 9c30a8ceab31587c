package server

import (
	"context"
	"fmt"
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

// tracer times calls: those that are traced, to make spans of what they waited for, and the others,
// to log those that took long. A nil tracer times nothing.
type tracer struct {
	spans trace.Tracer // nil if no call is traced
	slow  *slowLog     // nil if no call is logged
	log   places
	wg    sync.WaitGroup // of the goroutine that makes spans

	mu       sync.Mutex
	forwards []forwarded // whose spans are to be made; it is not empty while the goroutine runs
}

// mostForwards bounds the commands whose spans wait to be made. Those of further ones are dropped,
// as OpenTelemetry drops spans that its exporter cannot keep up with.
const mostForwards = 4096

// forwarded is a command that a member forwarded to this one.
type forwarded struct {
	parent replica.Trace
	from   uint64
	stages
}

// newTracer returns nil if there is nothing to do.
func newTracer(cfg Config) *tracer {
	t := &tracer{slow: newSlowLog(cfg.GRPC.WarnAfter, cfg.Logger)}
	if cfg.TracerProvider != nil {
		t.spans = cfg.TracerProvider.Tracer("leasehold.dev/server",
			trace.WithInstrumentationVersion(version.Version))
	}
	if t.spans == nil && t.slow == nil {
		return nil
	}
	return t
}

// close waits until nothing more is made or logged.
func (t *tracer) close() {
	if t != nil {
		t.wg.Wait()
		t.slow.endWindow()
	}
}

// traces reports whether calls may be traced.
func (t *tracer) traces() bool { return t != nil && t.spans != nil }

// propagator reads the headers traceparent and tracestate (W3C Trace Context).
var propagator = propagation.TraceContext{}

// grpcOptions returns what begins the spans of gRPC's calls, nothing if there are none. The streams
// of leasehold.v1 and of relays have none: each request on them has its own.
func (s *Server) grpcOptions() []grpc.ServerOption {
	if !s.core.tracer.traces() {
		return nil
	}
	return []grpc.ServerOption{grpc.StatsHandler(otelgrpc.NewServerHandler(
		otelgrpc.WithTracerProvider(s.cfg.TracerProvider),
		otelgrpc.WithPropagators(propagator),
		otelgrpc.WithFilter(func(i *stats.RPCTagInfo) bool {
			return i.FullMethodName != pb.StreamService_Open_FullMethodName &&
				i.FullMethodName != pb.RelayService_Relay_FullMethodName
		}),
	))}
}

// start begins the span of a call that otelgrpc does not see.
func (t *tracer) start(
	ctx context.Context, carrier propagation.TextMapCarrier, name string,
) (context.Context, trace.Span) {
	name = strings.TrimPrefix(name, "/")
	return t.spans.Start(propagator.Extract(ctx, carrier), name,
		trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(
			attribute.String("rpc.system.name", "grpc"), attribute.String("rpc.method", name)))
}

// end ends a span that start began.
func end(s trace.Span, err error) {
	code := status.Code(err)
	s.SetAttributes(attribute.String("rpc.response.status_code", code.String()))
	if faults[code] {
		s.SetStatus(otelcodes.Error, "") // errors name keys
	}
	s.End()
}

// faults are the codes that mean that the server failed, and not its caller.
var faults = map[codes.Code]bool{
	codes.Unknown: true, codes.DeadlineExceeded: true, codes.Unimplemented: true,
	codes.Internal: true, codes.Unavailable: true, codes.DataLoss: true,
}

// headers implements propagation.TextMapCarrier.
type headers metadata.MD

func (h headers) Get(key string) string { return strings.Join(metadata.MD(h).Get(key), ",") }
func (h headers) Set(string, string)    {}
func (h headers) Keys() []string        { return nil }

// relayed is a grpc.UnaryServerInterceptor of the calls that relays carry.
func (t *tracer) relayed(
	ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler,
) (any, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	ctx, span := t.start(ctx, headers(md), info.FullMethod)
	resp, err := next(ctx, req)
	end(span, err)
	return resp, err
}

// begin returns a call that is timed from now on, nil if nobody wants to know.
func (t *tracer) begin(ctx context.Context, method string) *tracedCall {
	if t == nil {
		return nil
	}
	traced := t.spans != nil && trace.SpanFromContext(ctx).IsRecording()
	if t.slow == nil && !traced {
		return nil
	}
	return &tracedCall{
		Context: ctx, tracer: t, name: method, begun: sinceEpoch(), traced: traced,
	}
}

var requestBody = (*pb.Request)(nil).ProtoReflect().Descriptor().Oneofs().ByName("body")

// request begins the trace of a request of a leasehold.v1 stream, nil if it is not sampled. A
// request that lasts as long as its client is traced until its first response. Events of leases,
// and the session with which a client begins, have no trace.
func (t *tracer) request(r *pb.Request) native.Traced {
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
	return &tracedCall{
		Context: ctx, tracer: t, name: name, begun: sinceEpoch(), traced: true, own: true,
	}
}

// tracedCall is a call that is timed, and the context of what it asks of the node.
type tracedCall struct {
	context.Context // with its span, if it is traced
	tracer          *tracer
	name            string // SERVICE/METHOD
	begun           int64
	traced          bool // the spans of its parts are wanted
	own             bool // End ends its span

	mu       sync.Mutex    // guards what follows
	took     *[parts]int64 // nil if nothing is known
	waits    []partSpan    // what becomes a span, if it is traced
	first    int64         // when the core was asked first; 0 if it was not
	asking   int64         // for how long the core was asked
	answered bool          // the core has answered the last time that it was asked
	leads    bool          // this member, when the core answered last
	over     bool
}

type tracedKey struct{}

// Value implements context.Context.
func (c *tracedCall) Value(key any) any {
	if key == (tracedKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// In implements native.Traced.
func (c *tracedCall) In(ctx context.Context) context.Context {
	return context.WithValue(ctx, tracedKey{}, c)
}

// ask returns the stages of a request that is made of the core now, for the call of a context.
func (t *tracer) ask(ctx context.Context) stages {
	if t == nil {
		return stages{}
	}
	c, _ := ctx.Value(tracedKey{}).(*tracedCall)
	if c == nil {
		return stages{}
	}
	return stages{call: c, asked: sinceEpoch()}
}

// trace returns what a command takes to the leader, nil if its call is not sampled.
func (s *stages) trace() *replica.Trace {
	if s.call == nil || !s.call.traced {
		return nil
	}
	c := trace.SpanContextFromContext(s.call.Context)
	if !c.IsSampled() {
		return nil
	}
	return &replica.Trace{ID: c.TraceID(), Span: c.SpanID()}
}

// End ends a call, and logs it if it took long.
func (c *tracedCall) End(err error) {
	now := sinceEpoch()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return
	}
	c.over = true
	c.makeSpans()
	c.tracer.slow.look(c, now, err)
	if c.own {
		end(trace.SpanFromContext(c.Context), err)
	}
}

// part is what a call waited for.
type part int

// The parts. All but cacheWait, which is within queued in spans and before it in the log, and
// logSync, which is beside commit, come one after the other.
const (
	queued part = iota
	cacheWait
	forward
	commit
	logSync
	apply
	confirm
	noAnswer // wherever the call was when it stopped waiting
	parts
)

// partNames are the names of spans. In the log they have "-ms" behind.
var partNames = [parts]string{
	"queue", "cache wait", "forward", "commit", "log sync", "apply", "confirm", "no answer",
}

// partSpan is a part of a call, from one instant to another.
type partSpan struct {
	part
	from, to int64
	more     []attribute.KeyValue
}

// part notes what a call waited for, from one instant to another, unless one is not known. The core
// may call it, so it makes no spans: see makeSpans.
func (c *tracedCall) part(p part, from, to int64, more ...attribute.KeyValue) {
	if from == 0 || to == 0 {
		return
	}
	to = max(from, to)
	if c.took == nil {
		c.took = new([parts]int64)
	}
	c.took[p] += to - from
	if c.traced {
		c.waits = append(c.waits, partSpan{p, from, to, more})
	}
}

// makeSpans makes the spans of a call's parts.
func (c *tracedCall) makeSpans() {
	for _, p := range c.waits {
		_, s := c.tracer.spans.Start(c.Context, partNames[p.part],
			trace.WithTimestamp(wall(p.from)), trace.WithAttributes(p.more...))
		s.End(trace.WithTimestamp(wall(p.to)))
	}
}

// wall converts nanoseconds since epoch, which no change of the wall clock moves, to wall time.
func wall(at int64) time.Time {
	now := time.Now()
	return now.Add(time.Duration(at) - now.Sub(epoch))
}

func waitAttributes(w replica.CacheWait) []attribute.KeyValue {
	all := []attribute.KeyValue{attribute.Int("leasehold.cache_drops", w.Drops)}
	if w.Last != 0 {
		all = append(all, attribute.String("leasehold.last_lease", fmt.Sprintf("%016x", uint64(w.Last))))
	}
	return all
}

// arrived notes when a message came that has commands with a trace.
func (t *tracer) arrived(m *replica.Message) {
	if m.Forward != nil && len(m.Forward.Traces) > 0 && t.traces() {
		m.Forward.Arrived = sinceEpoch()
	}
}

// led makes the leader's spans of commands that other members forwarded, which are sampled there.
// The core calls it, so another goroutine makes them.
func (t *tracer) led(list []*replica.Proposal) {
	if !t.traces() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	idle := len(t.forwards) == 0
	for _, p := range list {
		s := stages{
			asked: p.Arrived, leads: true, wait: p.Wait, through: t.log.instant(p.Wait.Until),
			entryTimes: t.log.times(p.Index, p.Arrived),
		}
		if s.asked != 0 && s.applied != 0 && len(t.forwards) < mostForwards {
			t.forwards = append(t.forwards, forwarded{*p.Trace, p.From(), s})
		}
	}
	if idle && len(t.forwards) > 0 {
		t.wg.Go(t.makeLeaders)
	}
}

// makeLeaders makes spans until there are none to make.
func (t *tracer) makeLeaders() {
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

// leader makes the leader's spans of a command that a member forwarded.
func (t *tracer) leader(f *forwarded) {
	ctx, span := t.spans.Start(trace.ContextWithRemoteSpanContext(context.Background(),
		trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: f.parent.ID, SpanID: f.parent.Span, TraceFlags: trace.FlagsSampled,
		})), "leader", trace.WithSpanKind(trace.SpanKindServer),
		trace.WithTimestamp(wall(f.asked)),
		trace.WithAttributes(attribute.String("leasehold.from", fmt.Sprintf("%x", f.from))))
	c := &tracedCall{Context: ctx, tracer: t, traced: span.IsRecording()}
	f.closeCommand(c)
	c.makeSpans()
	span.End(trace.WithTimestamp(wall(f.applied)))
}
