// Package tracing sends the spans of a process to an OpenTelemetry collector, as configured by
// OpenTelemetry's environment variables. It never blocks. Spans that do not fit in a bounded queue
// are dropped and counted.
package tracing

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// closeLimit bounds the duration of Close.
const closeLimit = time.Second

// Tracing sends the spans of its provider. A nil Tracing has no provider and sends nothing.
type Tracing struct {
	provider *sdk.TracerProvider
	metrics  *metrics
}

// Open returns the Tracing configured by the environment, or nil if traces are disabled. The
// attributes describe the process. The environment can override them and add others.
func Open(log *slog.Logger, attributes ...attribute.KeyValue) (*Tracing, error) {
	ctx := context.Background()
	exporter, err := newExporter(ctx)
	if exporter == nil || err != nil {
		return nil, err
	}
	otel.SetLogger(logr.FromSlogHandler(log.Handler()))
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		log.Warn("OpenTelemetry reported an error", "error", err)
	}))
	return newTracing(ctx, exporter, log, attributes)
}

func newTracing(
	ctx context.Context, exporter sdk.SpanExporter, log *slog.Logger,
	attributes []attribute.KeyValue,
) (*Tracing, error) {
	if err := checkBatches(); err != nil {
		return nil, err
	}
	r, err := resource.New(ctx, resource.WithTelemetrySDK(),
		resource.WithAttributes(attributes...), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	m := newMetrics()
	q := &queue{metrics: m}
	q.SpanProcessor = sdk.NewBatchSpanProcessor(&counted{exporter, q, log, false},
		func(o *sdk.BatchSpanProcessorOptions) {
			q.most = int64(o.MaxQueueSize)
			o.MaxQueueSize += o.MaxExportBatchSize // q counts spans that are being sent as well
		})
	return &Tracing{sdk.NewTracerProvider(sdk.WithSpanProcessor(q), sdk.WithResource(r)), m}, nil
}

// checkBatches returns an error if an environment variable has a value that would make the batch
// processor panic or spin.
func checkBatches() error {
	for _, name := range [...]string{
		"OTEL_BSP_MAX_QUEUE_SIZE", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "OTEL_BSP_SCHEDULE_DELAY",
	} {
		value := os.Getenv(name)
		if n, err := strconv.Atoi(value); err == nil && n <= 0 {
			return fmt.Errorf("%s is %s; it must be above 0", name, value)
		}
	}
	return nil
}

// newExporter returns the configured exporter, or nil if there is none.
func newExporter(ctx context.Context) (sdk.SpanExporter, error) {
	kind := os.Getenv("OTEL_TRACES_EXPORTER")
	name, endpoint := "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", ""
	if endpoint = os.Getenv(name); endpoint == "" {
		name = "OTEL_EXPORTER_OTLP_ENDPOINT"
		endpoint = os.Getenv(name)
	}
	switch {
	case strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true"), kind == "none",
		kind == "" && endpoint == "":
		return nil, nil
	case kind != "" && kind != "otlp":
		return nil, fmt.Errorf("OTEL_TRACES_EXPORTER is %q; it must be otlp or none", kind)
	}
	if u, err := url.Parse(endpoint); endpoint != "" &&
		(err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
		return nil, fmt.Errorf("%s is not a URL such as http://localhost:4318", name)
	}
	switch protocol := cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL"),
		os.Getenv("OTEL_EXPORTER_OTLP_PROTOCOL"), "http/protobuf"); protocol {
	case "grpc":
		return otlptracegrpc.New(ctx)
	case "http/protobuf":
		return otlptracehttp.New(ctx)
	default:
		return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_PROTOCOL is %q; it must be grpc or http/protobuf",
			protocol)
	}
}

// Provider returns the provider of tracers, or nil if traces are disabled.
func (t *Tracing) Provider() trace.TracerProvider {
	if t == nil {
		return nil
	}
	return t.provider
}

// Collectors returns the metrics of the spans.
func (t *Tracing) Collectors() []prometheus.Collector {
	if t == nil {
		return nil
	}
	return t.metrics.collectors()
}

// Close sends the remaining spans. It takes at most a second.
func (t *Tracing) Close() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	_ = t.provider.Shutdown(ctx) // it is too late to report an error
}

// queue counts the spans in a batch processor. The batch processor would drop spans silently, so
// queue drops spans before that happens.
type queue struct {
	sdk.SpanProcessor
	*metrics
	most    int64
	waiting atomic.Int64 // number of spans, including those being sent
}

// OnEnd implements sdk.SpanProcessor.
func (q *queue) OnEnd(s sdk.ReadOnlySpan) {
	if !s.SpanContext().IsSampled() {
		return
	}
	if q.waiting.Add(1) > q.most {
		q.waiting.Add(-1)
		q.dropped.WithLabelValues(queueFull).Inc()
		return
	}
	q.SpanProcessor.OnEnd(s)
}

// counted is an exporter that counts spans. It logs when the collector starts to fail and when it
// recovers.
type counted struct {
	sdk.SpanExporter
	queue   *queue
	log     *slog.Logger
	failing bool
}

// ExportSpans implements sdk.SpanExporter. The batch processor makes one call at a time.
func (c *counted) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := c.SpanExporter.ExportSpans(ctx, spans)
	n := len(spans)
	c.queue.waiting.Add(-int64(n))
	if err == nil {
		c.queue.sent.Add(float64(n))
	} else {
		c.queue.dropped.WithLabelValues(unsent).Add(float64(n))
	}
	switch failing := err != nil; {
	case failing && !c.failing:
		c.log.Warn("the collector is rejecting spans; they are dropped and counted in "+
			"leasehold_trace_spans_dropped_total", "error", err)
	case c.failing && !failing:
		c.log.Info("the collector is accepting spans again")
	}
	c.failing = err != nil
	return nil
}

// These constants are the reasons for dropping spans.
const (
	queueFull = "queue_full" // the collector is too slow or cannot be reached
	unsent    = "unsent"     // the collector rejected them or could not be reached
)

type metrics struct {
	sent    prometheus.Counter
	dropped *prometheus.CounterVec
}

func newMetrics() *metrics {
	m := &metrics{
		sent: prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "leasehold", Name: "trace_spans_sent_total",
			Help: "Spans accepted by the collector, if tracing is enabled.",
		}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Namespace: "leasehold", Name: "trace_spans_dropped_total",
			Help: "Spans dropped, if tracing is enabled: the queue was full, or the collector " +
				"rejected them or was unreachable.",
		}, []string{"reason"}),
	}
	for _, reason := range []string{queueFull, unsent} {
		m.dropped.WithLabelValues(reason)
	}
	return m
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.sent, m.dropped}
}

// Collectors returns the metrics of a Tracing that is not open, so that they can be described.
func Collectors() []prometheus.Collector { return newMetrics().collectors() }
