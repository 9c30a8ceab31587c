package timing

import (
	"context"
	"maps"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"leasehold.dev/internal/replica"
)

// newSampled returns a tracer that samples every call, and an exporter that records its spans.
func newSampled() (*Tracer, *tracetest.InMemoryExporter) {
	spans := tracetest.NewInMemoryExporter()
	return New(Config{Provider: sdk.NewTracerProvider(sdk.WithSyncer(spans))}), spans
}

// sampledCall returns a call with a span.
func sampledCall(tr *Tracer) *Call {
	ctx, _ := tr.spans.Start(context.Background(), "s/m")
	return &Call{
		Context: ctx, tracer: tr, name: "/s/m", begun: sinceEpoch(), traced: true, own: true,
	}
}

// TestStagesInOneStep covers a follower that learns of an entry and its commit in one message,
// before it has the entry. No stage may begin before the preceding one.
func TestStagesInOneStep(t *testing.T) {
	tr, recorded := newSampled()
	tr.log.committed.note(5, span{1010, 1010})
	tr.log.appended.note(5, span{1020, 1020})
	tr.log.applied.note(5, span{1015, 1015})
	s := Stages{call: sampledCall(tr), requested: 1005}
	s.Answered(&replica.Proposal{Index: 5}, 1030)
	s.Close(true, false)
	s.call.makeSpans()
	want := map[string]time.Duration{"forward": 15, "commit": 0, "apply": 0}
	for _, p := range recorded.GetSpans() {
		if w, ok := want[p.Name]; !ok || p.EndTime.Sub(p.StartTime) < w {
			t.Errorf("%s takes %v, want %v", p.Name, p.EndTime.Sub(p.StartTime), w)
		}
		delete(want, p.Name)
	}
	if len(want) > 0 {
		t.Errorf("there is no %v", want)
	}
}

// TestCallEndsOnce checks that the spans of a call are recorded only once, even if more becomes
// known after it ends.
func TestCallEndsOnce(t *testing.T) {
	tr, recorded := newSampled()
	call := sampledCall(tr)
	for _, end := range []bool{true, false} {
		s := tr.Ask(call)
		if end {
			s.Answered(&replica.Proposal{}, sinceEpoch())
			s.Close(false, false)
			s = tr.Ask(call)
		}
		call.End(nil)
		s.Answered(&replica.Proposal{}, sinceEpoch())
		s.Close(false, false)
	}
	count := map[string]int{}
	for _, s := range recorded.GetSpans() {
		count[s.Name]++
	}
	if !maps.Equal(count, map[string]int{"s/m": 1, "confirm": 1}) {
		t.Errorf("%v", count)
	}
}

// TestPlace checks that the arrival time of an index is the time of the first mark that includes
// it. It is unknown if that mark was dropped, if the log was rewritten, or if the index arrived
// before the first query.
func TestPlace(t *testing.T) {
	p := &place{}
	if got := p.of(1, 0); got != (span{}) {
		t.Errorf("of nothing: %v", got)
	}
	note := func(index uint64, at int64) { p.note(index, span{at, at}) }
	note(3, 10)
	note(5, 20)
	note(5, 25)
	note(9, 30)
	is := func(index uint64, after, want int64) {
		t.Helper()
		if got := p.of(index, after); got != (span{want, want}) {
			t.Errorf("%d after %d: %v, want %d", index, after, got, want)
		}
	}
	is(1, 0, 10)
	is(3, 0, 10)
	is(4, 0, 20)
	is(9, 0, 30)
	is(10, 0, 0)
	is(4, 21, 30)
	is(4, 31, 0)
	note(6, 40) // from another leader
	is(5, 0, 40)
	is(9, 0, 0)
	for i := range uint64(2000) {
		note(100+i, int64(100+i))
	}
	is(2000, 0, 2000)
	is(100, 0, 0)
	is(50, 0, 0)
}

// blocking is a span processor that blocks until it is released.
type blocking struct {
	sdk.SpanProcessor
	started *atomic.Int64 // number of spans
	release chan struct{}
}

func newBlocking(e sdk.SpanExporter) blocking {
	return blocking{sdk.NewSimpleSpanProcessor(e), new(atomic.Int64), make(chan struct{})}
}

func (b blocking) OnStart(context.Context, sdk.ReadWriteSpan) {
	b.started.Add(1)
	<-b.release
}

// TestCoreMakesNoSpans checks that the core creates no spans, so a blocking span processor cannot
// delay it.
func TestCoreMakesNoSpans(t *testing.T) {
	b := newBlocking(tracetest.NewNoopExporter())
	tr := &Tracer{spans: sdk.NewTracerProvider(sdk.WithSpanProcessor(b)).Tracer("test")}
	ctx := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceFlags: trace.FlagsSampled,
	}))
	now := sinceEpoch()
	tr.log.appended.note(5, span{now, now})
	tr.log.committed.note(5, span{now, now})
	tr.log.applied.note(5, span{now, now})
	c := &Call{Context: ctx, tracer: tr, traced: true}
	s := Stages{call: c, requested: now - 2}
	s.Answered(&replica.Proposal{Index: 5}, now)
	s.Close(true, false)
	tr.Led([]*replica.Proposal{{Index: 5, Arrived: now - 2, Trace: &replica.Trace{}}})
	close(b.release)
	c.End(nil)
	tr.Close()
}

// TestForwardedCommandsAreBounded checks that while a span processor blocks, a leader keeps a
// bounded number of forwarded commands with pending spans, and uses a single goroutine.
func TestForwardedCommandsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		recorded := tracetest.NewInMemoryExporter()
		b := newBlocking(recorded)
		tr := &Tracer{spans: sdk.NewTracerProvider(sdk.WithSpanProcessor(b)).Tracer("test")}
		now := sinceEpoch()
		tr.log.applied.note(5, span{now, now})
		for range 2 * mostForwards {
			tr.Led([]*replica.Proposal{{
				Index: 5, Arrived: now - 2,
				Trace: &replica.Trace{ID: trace.TraceID{1}, Span: trace.SpanID{1}},
			}})
		}
		synctest.Wait()
		if n := b.started.Load(); n != 1 {
			t.Errorf("%d goroutines make spans, want 1", n)
		}
		close(b.release)
		tr.Close()
		if n := len(recorded.GetSpans()); n != mostForwards {
			t.Errorf("there are %d spans, want %d", n, mostForwards)
		}
	})
}

// TestOnlySampledCallsAreForwarded checks that a leader creates spans only for sampled calls.
func TestOnlySampledCallsAreForwarded(t *testing.T) {
	for _, d := range []sdk.SamplingDecision{sdk.RecordOnly, sdk.RecordAndSample} {
		tr := &Tracer{spans: sdk.NewTracerProvider(sdk.WithSampler(decided(d))).Tracer("test")}
		s := Stages{call: sampledCall(tr)}
		if got := s.Trace(); (got != nil) != (d == sdk.RecordAndSample) {
			t.Errorf("decision %d: %v", d, got)
		}
	}
}

// decided is a sampler that always makes the same decision.
type decided sdk.SamplingDecision

func (d decided) ShouldSample(sdk.SamplingParameters) sdk.SamplingResult {
	return sdk.SamplingResult{Decision: sdk.SamplingDecision(d)}
}
func (decided) Description() string { return "decided" }
