package server

import (
	"testing"

	"leasehold.dev/internal/replica"
	"leasehold.dev/internal/trace"
	"leasehold.dev/internal/trace/tracetest"
	"leasehold.dev/test/virtual"
)

// Goal: a call has its spans once, whatever is told of it after its end, and not more than are
// bounded. Method: two calls that are ended twice, one that was given up and is answered later, and
// one with very many parts; the collector has them when the member has stopped. That sends them for
// a second only, which may be too short on a busy machine: then they count as dropped, and there is
// another try.
func TestCallEndsOnce(t *testing.T) { virtual.Test(t, testCallEndsOnce) }

func testCallEndsOnce(t *testing.T) {
	for range 10 {
		c := &tracetest.Collector{}
		r := run(t, traced(t, testConfig(shortDir(t)), c))
		endTwice(r.core.tracer)
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		if droppedSpans(t, r) > 0 {
			continue
		}
		count := map[string]int{}
		for _, s := range collected(t, c) {
			count[s.Name]++
		}
		if count["s/m"] != 2 || count["confirm"] != 1+maxParts || count["answer"] != 1 {
			t.Errorf("%v", count)
		}
		return
	}
	t.Error("a member that stops does not send the spans that are left")
}

// endTwice has calls ended twice.
func endTwice(tr *tracer) {
	for _, asks := range []int{1, 2 * maxParts} {
		call := tr.sampledCall(trace.Parent{Trace: trace.NewID(0, uint64(asks))}, "/s/m")
		for range asks {
			s := call.ask(sinceEpoch())
			s.of(&replica.Proposal{}, sinceEpoch())
			s.close(false, false)
		}
		late := call.ask(sinceEpoch())
		call.End(nil)
		late.of(&replica.Proposal{}, sinceEpoch())
		late.close(false, false)
		call.End(nil)
	}
}
