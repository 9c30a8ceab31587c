// Package otlp sends spans to a collector: OTLP over HTTP, with messages in protobuf. Calls
// never wait for it: what a collector does not take in time is dropped and counted.
package otlp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"leasehold.dev/internal/trace"
)

// The bounds of an exporter.
const (
	// maxQueued is how many spans may wait.
	maxQueued = 4096
	// maxBatch is how many are sent together, at most.
	maxBatch = 512
	// every is how long a span waits for others, at most, if the collector answers.
	every = 2 * time.Second
	// timeout bounds one try to send.
	timeout = 10 * time.Second
	// patience bounds the tries for one batch.
	patience = time.Minute
	// lastPatience bounds all that is sent at the end, but in some tests.
	lastPatience = time.Second
	// firstPause and maxPause are between two tries, unless the collector says.
	firstPause, maxPause = time.Second, 15 * time.Second
)

// Options are what an exporter is told.
type Options struct {
	Settings
	// Resource says which member sends the spans, and Release by which release.
	Resource []trace.Attribute
	Release  string
	Logger   *slog.Logger
	// Dial opens connections to the collector. Default: the machine's network.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// target returns the URL that spans are posted to, for an endpoint. Errors tell no password.
func target(endpoint string) (string, error) {
	u, err := url.Parse(endpoint)
	switch {
	case err != nil:
		return "", errors.New("--trace-endpoint is not of the form http://HOST:PORT or https://HOST:PORT")
	case u.Scheme != "http" && u.Scheme != "https", u.Host == "", !isPort(u.Port()):
		return "", fmt.Errorf("--trace-endpoint: %q is not of the form http://HOST:PORT or "+
			"https://HOST:PORT", u.Redacted())
	case u.User != nil, u.RawQuery != "", u.Fragment != "":
		return "", fmt.Errorf("--trace-endpoint: %q has more than a host and a path", u.Redacted())
	}
	return u.JoinPath("v1/traces").String(), nil
}

// isPort reports whether a URL may have a port, "" for none.
func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return text == "" || err == nil && n > 0
}

// Exporter sends spans. Its methods may be called from any goroutine.
type Exporter struct {
	o      Options
	url    string
	client *http.Client
	wake   chan struct{} // capacity 1: there is a batch
	last   time.Duration // bounds all that is sent at the end

	sent    prometheus.Counter
	dropped *prometheus.CounterVec
	failing bool // the collector did not take the last batch; Run's

	mu     sync.Mutex
	queued []trace.Span
	closed bool
}

// Why spans are dropped.
const (
	queueFull = "queue_full" // the collector is too slow, or away
	refused   = "refused"    // the collector took others, or none
	unsent    = "unsent"     // the collector could not be reached, or the member ended
)

// New returns an exporter, which sends nothing before Run.
func New(o Options) (*Exporter, error) {
	to, err := target(o.Endpoint)
	if err != nil {
		return nil, err
	}
	e := &Exporter{
		o: o, url: to, wake: make(chan struct{}, 1), last: lastPatience,
		client: &http.Client{
			Transport: &http.Transport{
				Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true, MaxIdleConns: 1,
				IdleConnTimeout: time.Minute, DialContext: o.Dial,
			},
			// What is in the headers is for the collector, and nobody that it names.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		sent: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "leasehold", Name: "trace_spans_sent_total",
			Help: "Spans that the collector took; with --trace-endpoint.",
		}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "leasehold", Name: "trace_spans_dropped_total",
			Help: "Spans that were dropped: the queue was full, the collector refused them, or it " +
				"could not be reached; with --trace-endpoint.",
		}, []string{"reason"}),
	}
	for _, reason := range []string{queueFull, refused, unsent} {
		e.dropped.WithLabelValues(reason)
	}
	if _, err := e.headers(); err != nil {
		return nil, fmt.Errorf("--trace-headers-file: %w", err)
	}
	return e, nil
}

// Collectors returns the metrics of an exporter.
func (e *Exporter) Collectors() []prometheus.Collector {
	return []prometheus.Collector{e.sent, e.dropped}
}

// Add takes spans that belong together, all or none. It does not wait.
func (e *Exporter) Add(spans ...trace.Span) {
	e.mu.Lock()
	fits := len(e.queued)+len(spans) <= maxQueued && !e.closed
	if fits {
		e.queued = append(e.queued, spans...)
	}
	full := len(e.queued) >= maxBatch
	e.mu.Unlock()
	if !fits {
		e.drop(queueFull, len(spans))
	}
	if full {
		select {
		case e.wake <- struct{}{}:
		default:
		}
	}
}

func (e *Exporter) drop(reason string, spans int) {
	e.dropped.WithLabelValues(reason).Add(float64(spans))
}

// Run sends spans until ctx ends, and then what is left, for a while at most.
func (e *Exporter) Run(ctx context.Context) {
	defer e.client.CloseIdleConnections()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for ctx.Err() == nil {
		select {
		case <-e.wake:
		case <-tick.C:
		case <-ctx.Done():
		}
		e.sendAll(ctx, patience)
	}
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), e.last)
	defer cancel()
	e.sendAll(last, e.last)
	e.drop(unsent, len(e.take(math.MaxInt)))
}

// sendAll sends what waits, until ctx ends. A batch that was not taken when ctx ends waits again.
func (e *Exporter) sendAll(ctx context.Context, patience time.Duration) {
	for ctx.Err() == nil {
		batch := e.take(maxBatch)
		if len(batch) == 0 {
			return
		}
		err := e.send(ctx, batch, patience)
		if err == nil {
			e.tell(nil)
			continue
		}
		if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
			e.putBack(batch)
			return
		}
		e.tell(err)
	}
}

// take takes the first spans that wait.
func (e *Exporter) take(most int) []trace.Span {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := min(most, len(e.queued))
	batch := e.queued[:n:n]
	if e.queued = e.queued[n:]; len(e.queued) == 0 {
		e.queued = nil
	}
	return batch
}

// putBack puts spans where they were taken from.
func (e *Exporter) putBack(batch []trace.Span) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.queued = append(batch, e.queued...)
}

// tell logs that the collector does not take spans, or does again.
func (e *Exporter) tell(err error) {
	switch failing := err != nil; {
	case failing && !e.failing:
		e.o.Logger.Warn("the collector does not take spans; those that it does not take in time are "+
			"dropped, see leasehold_trace_spans_dropped_total", "endpoint", e.o.Endpoint, "error", err)
	case e.failing && !failing:
		e.o.Logger.Info("the collector takes spans again", "endpoint", e.o.Endpoint)
	}
	e.failing = err != nil
}
