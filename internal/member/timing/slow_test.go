package timing

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"leasehold.dev/internal/api/etcd/v3lockpb"
	"leasehold.dev/internal/replica"
	"leasehold.dev/test/harness"
)

// TestSlowCallsAreBounded checks that if many calls are slow, only a few are logged per window,
// along with the number omitted.
func TestSlowCallsAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log harness.Log
		tr := &Tracer{slow: newSlowLog(time.Nanosecond, slog.New(slog.NewTextHandler(&log, nil)))}
		call := func(n int) {
			for range n {
				(&Call{tracer: tr, name: "/s/m", begun: sinceEpoch() - 1000}).End(nil)
			}
		}
		lines := func(calls int, left ...int) {
			t.Helper()
			if got := log.Count("call=s/m "); got != calls {
				t.Errorf("%d lines, want %d", got, calls)
			}
			if got := log.Count("left-out="); got != len(left) {
				t.Errorf("what is left out is told of %d times", got)
			}
			for _, n := range left {
				if !log.Contains(fmt.Sprintf("left-out=%d\n", n)) {
					t.Errorf("%d calls are not left out: %s", n, log.String())
				}
			}
		}
		call(slowLines)
		time.Sleep(slowWindow)
		synctest.Wait()
		lines(slowLines) // nothing was omitted
		call(slowLines + 7)
		lines(2 * slowLines)
		time.Sleep(slowWindow)
		synctest.Wait()
		lines(2*slowLines, 7)
		call(slowLines + 3)
		tr.slow.endWindow()
		lines(3*slowLines, 7, 3)
	})
}

// TestSlowThreshold checks that only calls exceeding the limit are logged. For calls that
// wait for other clients, only the time in the core counts.
func TestSlowThreshold(t *testing.T) {
	const limit = int64(300 * time.Millisecond)
	for _, c := range []struct {
		name         string
		took, asking int64
		slow         bool
	}{
		{"/s/m", limit, 0, true},
		{"/s/m", limit - 1, limit - 1, false},
		{v3lockpb.Lock_Lock_FullMethodName, 100 * limit, limit - 1, false},
		{v3lockpb.Lock_Lock_FullMethodName, 100 * limit, limit, true},
	} {
		var log harness.Log
		tr := &Tracer{slow: newSlowLog(time.Duration(limit), slog.New(slog.NewTextHandler(&log, nil)))}
		call := &Call{tracer: tr, name: c.name, begun: 1}
		call.asking = c.asking
		tr.slow.look(call, 1+c.took, nil)
		if log.Contains("call=") != c.slow {
			t.Errorf("%+v: %s", c, log.String())
		}
		tr.slow.endWindow()
	}
}

// TestSlowParts checks that a log line contains each part of a call once, and that waiting for
// caches does not count as time in the queue.
func TestSlowParts(t *testing.T) {
	const unit = int64(time.Millisecond)
	var log harness.Log
	tr := &Tracer{slow: newSlowLog(1, slog.New(slog.NewTextHandler(&log, nil)))}
	defer tr.slow.endWindow()
	begun := int64(1)
	at := func(n int64) int64 { return begun + n*unit }
	note := func(p *place, n int64) { p.note(5, span{at(n), at(n)}) }
	tr.log.leads = true
	note(&tr.log.appended, 100)
	tr.log.synced.note(5, span{at(101), at(140)})
	note(&tr.log.committed, 150)
	note(&tr.log.applied, 170)
	call := &Call{tracer: tr, name: "/s/m", begun: begun}
	s := Stages{call: call, requested: at(10)}
	tr.log.worked = span{begun, begun}
	s.Answered(&replica.Proposal{Index: 5, Wait: replica.CacheWait{For: 60, Until: 70}}, at(171))
	s.Close(true, false)
	s = Stages{call: call, requested: at(180)}
	s.Answered(&replica.Proposal{}, at(200))
	s.Close(false, false)
	tr.slow.look(call, at(205), errors.New("secret"))
	const want = `msg="slow call" call=s/m took-ms=205 code=Unknown leader=true ` +
		"checks-ms=10 queue-ms=30 cache-wait-ms=60 commit-ms=50 log-sync-ms=39 " +
		"apply-ms=20 confirm-ms=20\n"
	if got := log.String(); !strings.HasSuffix(got, want) {
		t.Errorf("got  %swant %s", got, want)
	}
}

// TestSlowWithoutAnswer checks that if the core never answers a call, the time spent waiting for it
// does not count as time in the queue.
func TestSlowWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log harness.Log
		tr := &Tracer{slow: newSlowLog(1, slog.New(slog.NewTextHandler(&log, nil)))}
		defer tr.slow.endWindow()
		call := &Call{tracer: tr, name: "/s/m", begun: sinceEpoch()}
		s := Stages{call: call, requested: call.begun}
		time.Sleep(2 * time.Second)
		s.Close(true, true)
		call.End(errors.New("secret"))
		if got, want := log.String(), "code=Unknown no-answer-ms=2000\n"; !strings.HasSuffix(got, want) {
			t.Errorf("got  %swant %s", got, want)
		}
	})
}
