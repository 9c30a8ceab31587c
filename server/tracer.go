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
	"leasehold.dev/internal/api/etcd"
	"leasehold.dev/internal/api/native"
	"leasehold.dev/internal/storage"
	"leasehold.dev/internal/trace"
	"leasehold.dev/internal/trace/otlp"
	"leasehold.dev/internal/version"
)

// tracer makes spans of the calls that are sampled, and logs those that took long, after the fact:
// while they are under way only instants are noted. Its methods do nothing if it is nil, which is
// so if neither is wanted.
type tracer struct {
	out  *otlp.Exporter // nil if no spans are made
	rate trace.Rate
	slow *slowLog // nil if no call is slow
	log  places
	// notes are for leaders, and arrivals are of what followers forward to this one.
	notes    traceNotes
	arrivals arrivals
	// latest is a call that waits for the core: the exemplar of what the core and the disk take
	// meanwhile.
	latest atomic.Pointer[tracedCall]
}

// newTracer returns nil if there is nothing to do.
func newTracer(cfg Config, id storage.Identity) (*tracer, error) {
	c, slow := cfg.Trace, newSlowLog(cfg.GRPC.WarnAfter, cfg.Logger)
	if c.Endpoint == "" {
		if slow == nil {
			return nil, nil
		}
		return &tracer{slow: slow}, nil
	}
	out, err := otlp.New(otlp.Options{
		Settings: c, Logger: cfg.Logger, Release: version.Version,
		Dial: cfg.Host.Dialer(),
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
	return &tracer{
		out: out, rate: trace.NewRate(c.SampleRate), slow: slow, notes: newTraceNotes(),
	}, nil
}

// sends reports whether spans are made.
func (t *tracer) sends() bool { return t != nil && t.out != nil }

// collectors are its metrics.
func (t *tracer) collectors() []prometheus.Collector {
	if !t.sends() {
		return nil
	}
	return t.out.Collectors()
}

// start begins to send spans, and notes by send. What it returns ends that, when the last spans are
// sent and all slow calls are told of.
func (t *tracer) start(send sendNote) (stop func()) {
	if t == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	if t.out != nil {
		wg.Go(func() { t.out.Run(ctx) })
		wg.Go(func() { t.notes.run(ctx, send) })
	}
	return func() {
		cancel()
		wg.Wait()
		t.slow.endWindow()
	}
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

// begin returns nil for a call that nothing is to be known of.
func (t *tracer) begin(ctx context.Context, method string) *tracedCall {
	if t.out != nil {
		if call := t.sample(ctx, method); call != nil {
			return call
		}
	}
	if t.slow == nil {
		return nil
	}
	return t.newCall(method, sinceEpoch())
}

// sample begins a call if it is sampled, by what the headers say, or by the rate.
func (t *tracer) sample(ctx context.Context, name string) *tracedCall {
	parent, ok := parentOf(ctx)
	if !t.takes(&parent, ok) {
		return nil
	}
	if ok {
		parent.State = trace.State(metadata.ValueFromIncomingContext(ctx, "tracestate"))
	}
	return t.sampledCall(parent, name)
}

// streamed is sample for a part of a stream of etcd's API: a renewal, or the creation of a watch.
func (t *tracer) streamed(ctx context.Context, name string) etcd.Traced {
	if call := t.sample(ctx, name); call != nil {
		return call
	}
	return nil
}

// request begins the trace of a request of a stream of leasehold.v1, if it is sampled. Of those
// that last as long as their clients it is that of the beginning, but what follows leases has none,
// nor has the session that a client begins a stream with, which no caller asks for.
func (t *tracer) request(r *pb.Request) native.Traced {
	switch r.Body.(type) {
	case nil, *pb.Request_Cancel, *pb.Request_Events, *pb.Request_CacheAck, *pb.Request_Session:
		return nil
	}
	parent, ok := trace.Parse(r.Traceparent)
	if !t.takes(&parent, ok) {
		return nil
	}
	name := string(r.ProtoReflect().WhichOneof(requestBody).Name())
	return t.sampledCall(parent, pb.StreamService_Open_FullMethodName+"/"+name)
}

// newCall begins a call with a name such as /SERVICE/METHOD, at an instant since epoch.
func (t *tracer) newCall(name string, begun int64) *tracedCall {
	return &tracedCall{tracer: t, name: strings.TrimPrefix(name, "/"), begun: begun}
}

// sampledCall begins a call of which spans are made.
func (t *tracer) sampledCall(parent trace.Parent, name string) *tracedCall {
	now := time.Now()
	c := t.newCall(name, int64(now.Sub(epoch)))
	name = c.name
	service, method, _ := strings.Cut(name, "/")
	c.spans = &spans{
		begun: now.UnixNano(),
		call: trace.Span{
			Trace: parent.Trace, ID: trace.NewSpanID(rand.Uint64()), Parent: parent.Span,
			State: parent.State, Name: name, Kind: trace.Server, Start: now.UnixNano(),
			Attributes: []trace.Attribute{
				{Key: "rpc.system", Value: "grpc"},
				{Key: "rpc.service", Value: service},
				{Key: "rpc.method", Value: method},
			},
		},
	}
	return c
}

// observe observes a duration, with a call that waited meanwhile as the exemplar, if there is one.
func (t *tracer) observe(h prometheus.Histogram, d time.Duration) {
	if t != nil {
		if call := t.latest.Load(); call != nil {
			h.(prometheus.ExemplarObserver).ObserveWithExemplar(d.Seconds(),
				prometheus.Labels{"trace_id": call.spans.call.Trace.String()})
			return
		}
	}
	h.Observe(d.Seconds())
}

// tracedCall is a call of which spans are made, or of which it is told where its time went if it
// takes long.
type tracedCall struct {
	tracer *tracer
	name   string // SERVICE/METHOD
	begun  int64  // since epoch, which no change of the clock moves
	spans  *spans // nil if none are made

	mu     sync.Mutex    // guards what follows
	took   *[parts]int64 // nil if nothing is known
	first  int64         // when the core was asked first, since epoch; 0 if it was not
	last   int64         // when the core has answered last
	asking int64         // for how long the core was asked
	leads  bool          // this member, when the core answered last
	over   bool
}

// part is what a call waited for.
type part int

// The parts. All but log sync, which is beside commit, come one after the other.
const (
	admission part = iota
	cacheWait      // within admission in spans, before it in the log
	forward
	commit
	logSync
	apply
	confirm
	refused
	givenUp
	answer
	parts
)

// partNames are the names of spans. In the log they have "-ms" behind.
var partNames = [parts]string{
	"admission", "cache wait", "forward", "commit", "log sync", "apply", "confirm", "refused",
	"given up", "answer",
}

// spans are those of a call.
type spans struct {
	begun int64 // the call, since 1970
	call  trace.Span
	parts []trace.Span
}

// maxParts bounds the spans of a call: one that asks the core very often tells of the beginning.
const maxParts = 64

// part notes what a call waited for, from one instant since epoch to another, unless one is not
// known.
func (c *tracedCall) part(p part, from, to int64, more ...trace.Attribute) {
	if from == 0 || to == 0 {
		return
	}
	c.add(p, to-from)
	s := c.spans
	if s == nil || len(s.parts) >= maxParts {
		return
	}
	s.parts = append(s.parts, trace.Span{
		Trace: s.call.Trace, ID: trace.NewSpanID(rand.Uint64()), Parent: s.call.ID,
		State: s.call.State, Name: partNames[p], Kind: trace.Internal,
		Start: c.at(from), End: c.at(max(from, to)), Attributes: more,
	})
}

// add adds to the time of a part.
func (c *tracedCall) add(p part, time int64) {
	if c.took == nil {
		c.took = new([parts]int64)
	}
	c.took[p] += max(time, 0)
}

// at returns an instant since epoch as one since 1970.
func (c *tracedCall) at(instant int64) int64 { return c.spans.begun + instant - c.begun }

// faults are the codes that mean that the server failed, and not its caller.
var faults = map[codes.Code]bool{
	codes.Unknown: true, codes.DeadlineExceeded: true, codes.Unimplemented: true,
	codes.Internal: true, codes.Unavailable: true, codes.DataLoss: true,
}

// In implements native.Traced.
func (c *tracedCall) In(ctx context.Context) context.Context {
	return context.WithValue(ctx, tracedKey{}, c)
}

// End ends a call, hands its spans over, and logs it if it took long.
func (c *tracedCall) End(err error) {
	now := sinceEpoch()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return
	}
	c.over = true
	if c.spans != nil || c.tracer.slow.isSlow(now-c.begun) {
		c.part(answer, c.last, now)
		c.tracer.slow.look(c, now, err)
	}
	s := c.spans
	if s == nil {
		return
	}
	code := status.Code(err)
	c.tracer.latest.CompareAndSwap(c, nil)
	s.call.End, s.call.Failed = c.at(now), faults[code]
	s.call.Attributes = append(s.call.Attributes,
		trace.Attribute{Key: "rpc.grpc.status_code", Value: int64(code)})
	c.tracer.out.Add(append(s.parts, s.call)...)
}
