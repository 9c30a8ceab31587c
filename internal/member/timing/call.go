package timing

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"leasehold.dev/internal/replica"
)

// Call is a timed call, with the context for its requests to the node.
type Call struct {
	context.Context // with its span, if it is traced
	tracer          *Tracer
	name            string // SERVICE/METHOD
	begun           int64
	traced          bool // make spans of its parts
	own             bool // End ends its span

	mu       sync.Mutex    // guards the following fields
	took     *[parts]int64 // nil if nothing is known
	waits    []partSpan    // become spans, if it is traced
	first    int64         // of the first request to the core; 0 without one
	asking   int64         // total time of requests to the core
	answered bool          // the core has answered the latest request
	leads    bool          // whether this member led at the core's latest answer
	over     bool
}

type tracedKey struct{}

// Value implements context.Context.
func (c *Call) Value(key any) any {
	if key == (tracedKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// In implements native.Traced.
func (c *Call) In(ctx context.Context) context.Context {
	return context.WithValue(ctx, tracedKey{}, c)
}

// End ends a call, and logs it if it was slow.
func (c *Call) End(err error) {
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

// part is a part of a call that takes time.
type part int

// The parts. They follow each other, with two exceptions: cacheWait is within queued in spans, and
// before it in the log; logSync is concurrent with commit.
const (
	queued part = iota
	cacheWait
	forward
	commit
	logSync
	apply
	confirm
	noAnswer // wherever the call was when its caller stopped waiting
	parts
)

// partNames are the names of spans. In the log, "-ms" follows them.
var partNames = [parts]string{
	"queue", "cache wait", "forward", "commit", "log sync", "apply", "confirm", "no answer",
}

// partSpan is the interval of a part of a call.
type partSpan struct {
	part
	from, to int64
	more     []attribute.KeyValue
}

// part records an interval of a call, unless from or to is unknown. The core may call it, so it
// makes no spans: see makeSpans.
func (c *Call) part(p part, from, to int64, more ...attribute.KeyValue) {
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
func (c *Call) makeSpans() {
	for _, p := range c.waits {
		_, s := c.tracer.spans.Start(c.Context, partNames[p.part],
			trace.WithTimestamp(wall(p.from)), trace.WithAttributes(p.more...))
		s.End(trace.WithTimestamp(wall(p.to)))
	}
}

// wall converts nanoseconds since epoch to wall time. Adjustments of the wall clock do not affect
// the former.
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
