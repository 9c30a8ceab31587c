package timing

import (
	"log/slog"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc/status"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api/etcd"
	"leasehold.dev/internal/api/native"
)

const (
	// slowLines is the maximum number of lines about slow calls per slowWindow. If all calls are
	// slow, a line for each of them would be expensive and useless.
	slowLines  = 10
	slowWindow = 10 * time.Second
)

// slowLog logs slow calls together with the parts that took time. A nil slowLog does nothing.
type slowLog struct {
	after int64 // nanoseconds
	log   *slog.Logger

	mu     sync.Mutex // guards the fields below
	most   int        // maximum number of lines per window
	logged int        // lines in this window
	left   int        // calls omitted in this window
	timer  *time.Timer
}

// newSlowLog returns a slowLog, or nil if no calls should be logged.
func newSlowLog(after time.Duration, log *slog.Logger) *slowLog {
	if after <= 0 {
		return nil
	}
	return &slowLog{after: int64(after), log: log, most: slowLines}
}

// mayBeSlow reports whether a call that has waited this many nanoseconds for one request might turn
// out to be slow. Some calls make several requests to the core.
func (s *slowLog) mayBeSlow(waited int64) bool { return s != nil && waited >= s.after/8 }

// isSlow reports whether a call that took this many nanoseconds is slow.
func (s *slowLog) isSlow(took int64) bool { return s != nil && took >= s.after }

// look logs a call that is ending, if it was slow. The caller must hold c.mu.
func (s *slowLog) look(c *Call, now int64, err error) {
	took := now - c.begun
	if !s.isSlow(took) {
		return
	}
	checks, waits := c.first-c.begun, etcd.WaitsForOthers(c.name)
	if waits { // waiting for other clients does not make a call slow
		took = c.asking
	}
	if !s.isSlow(took) || !s.allowLine() {
		return
	}
	fields := []any{
		"call", strings.TrimPrefix(c.name, "/"), "took-ms", ms(took),
		"code", status.Code(err).String(),
	}
	if c.answered {
		fields = append(fields, "leader", c.leads)
	}
	if c.traced {
		fields = append(fields, "trace", trace.SpanContextFromContext(c.Context).TraceID().String())
	}
	if checks > 0 && !waits {
		fields = append(fields, "checks-ms", ms(checks))
	}
	var all [parts]int64
	if c.took != nil {
		all = *c.took
		all[queued] = max(all[queued]-all[cacheWait], 0)
	}
	for p, n := range all {
		if n > 0 {
			fields = append(fields, strings.ReplaceAll(partNames[p], " ", "-")+"-ms", ms(n))
		}
	}
	s.log.Warn("slow call", fields...)
}

// ms converts nanoseconds to milliseconds, with three decimals.
func ms(nanoseconds int64) float64 { return float64(nanoseconds/1000) / 1000 }

// allowLine reports whether another line can be logged in this window. Otherwise, it counts the
// call as omitted.
func (s *slowLog) allowLine() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.logged >= s.most {
		s.left++
		return false
	}
	if s.logged++; s.logged == 1 {
		s.timer = time.AfterFunc(slowWindow, s.endWindow)
	}
	return true
}

// endWindow logs how many calls were omitted in the window.
func (s *slowLog) endWindow() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.timer != nil {
		s.timer.Stop()
	}
	if s.left > 0 {
		s.log.Warn("some slow calls were not logged", "left-out", s.left)
	}
	s.logged, s.left, s.timer = 0, 0, nil
}

// SlowRequests returns the slow log for requests of leasehold.v1 streams.
func (t *Tracer) SlowRequests() native.Slow {
	if t == nil || t.slow == nil {
		return native.Slow{}
	}
	return native.Slow{After: time.Duration(t.slow.after), Call: func(
		kind string, begun time.Time, late native.Traced,
	) native.Traced {
		c, ok := late.(*Call)
		if !ok {
			c = &Call{tracer: t}
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.name = pb.StreamService_Open_FullMethodName + "/" + kind
		c.begun = int64(begun.Sub(epoch))
		return c
	}}
}
