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

// Call is a call that is being timed. It is also the context for the call's requests to the node.
type Call struct {
	context.Context // contains the call's span, if it is traced
	tracer          *Tracer
	name            string // SERVICE/METHOD
	begun           int64
	traced          bool // whether to create spans for its parts
	own             bool // whether End ends its span

	mu       sync.Mutex    // guards the fields below
	took     *[parts]int64 // time spent in each part; nil if nothing is known
	waits    []partSpan    // parts that become spans, if the call is traced
	first    int64         // instant of the first request to the core; 0 if there is none
	asking   int64         // total duration of requests to the core
	answered bool          // whether the core has answered the latest request
	leads    bool          // whether this member was the leader at the core's latest answer
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

// End ends a call. If the call was slow, it is logged.
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

// part is one of the parts of a call that take time.
type part int

// The parts are consecutive, with two exceptions. cacheWait is within queued in spans, and before
// queued in the log. logSync is concurrent with commit.
const (
	queued part = iota
	cacheWait
	forward
	commit
	logSync
	apply
	confirm
	noAnswer // whichever part the call was in when its caller stopped waiting
	parts
)

// partNames are the names of the spans. In the log, the suffix "-ms" is added.
var partNames = [parts]string{
	"queue", "cache wait", "forward", "commit", "log sync", "apply", "confirm", "no answer",
}

// partSpan is the interval of a part of a call.
type partSpan struct {
	part
	from, to int64
	more     []attribute.KeyValue
}

// part records the interval of a part of a call, unless from or to is unknown. It does not create
// spans, because the core can call it: see makeSpans.
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

// makeSpans creates the spans for a call's parts.
func (c *Call) makeSpans() {
	for _, p := range c.waits {
		_, s := c.tracer.spans.Start(c.Context, partNames[p.part],
			trace.WithTimestamp(wall(p.from)), trace.WithAttributes(p.more...))
		s.End(trace.WithTimestamp(wall(p.to)))
	}
}

// wall converts nanoseconds since epoch, which are unaffected by adjustments to the wall clock, to
// wall time.
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
