package tracing

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	coltracepb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

// clean unsets environment variables that could affect the test.
func clean(t *testing.T) {
	t.Helper()
	for _, name := range []string{
		"OTEL_SDK_DISABLED", "OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT",
		"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_PROTOCOL",
		"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_SERVICE_NAME",
		"OTEL_BSP_MAX_QUEUE_SIZE", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "OTEL_TRACES_SAMPLER",
	} {
		t.Setenv(name, "")
	}
	for _, name := range []string{ // a paused machine must not affect what is sent
		"OTEL_BSP_SCHEDULE_DELAY", "OTEL_BSP_EXPORT_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT",
	} {
		t.Setenv(name, "3600000")
	}
}

// TestEnvironment checks that tracing is off without an endpoint, and that an invalid variable is
// rejected.
func TestEnvironment(t *testing.T) {
	for _, c := range []struct{ set, want string }{
		{"", "off"},
		{"OTEL_TRACES_EXPORTER=none OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318", "off"},
		{"OTEL_SDK_DISABLED=true OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318", "off"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318", "on"},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=https://localhost/v1/traces", "on"},
		{"OTEL_TRACES_EXPORTER=otlp OTEL_EXPORTER_OTLP_PROTOCOL=grpc", "on"},
		{"OTEL_EXPORTER_OTLP_ENDPOINT=localhost:4317", "OTEL_EXPORTER_OTLP_ENDPOINT is not a URL"},
		{"OTEL_TRACES_EXPORTER=zipkin", "must be otlp or none"},
		{"OTEL_TRACES_EXPORTER=otlp OTEL_BSP_MAX_QUEUE_SIZE=-1", "OTEL_BSP_MAX_QUEUE_SIZE is -1"},
		{"OTEL_TRACES_EXPORTER=otlp OTEL_BSP_MAX_EXPORT_BATCH_SIZE=0", "it must be above 0"},
		{"OTEL_TRACES_EXPORTER=otlp OTEL_BSP_SCHEDULE_DELAY=-9", "OTEL_BSP_SCHEDULE_DELAY is -9"},
		{"OTEL_TRACES_EXPORTER=otlp OTEL_BSP_MAX_QUEUE_SIZE=1", "on"},
		{"OTEL_TRACES_EXPORTER=otlp OTEL_EXPORTER_OTLP_PROTOCOL=http/json", "must be grpc or http/protobuf"},
	} {
		t.Run(c.set, func(t *testing.T) {
			clean(t)
			for _, set := range strings.Fields(c.set) {
				name, value, _ := strings.Cut(set, "=")
				t.Setenv(name, value)
			}
			x, err := Open(slog.New(slog.DiscardHandler))
			got := "off"
			if err != nil {
				got = err.Error()
			} else {
				defer x.Close()
				if x.Provider() != nil {
					got = "on"
				}
			}
			if !strings.Contains(got, c.want) {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

// collector receives spans over gRPC and HTTP.
type collector struct {
	coltracepb.UnimplementedTraceServiceServer
	got chan string
}

func (c *collector) Export(
	_ context.Context, r *coltracepb.ExportTraceServiceRequest,
) (*coltracepb.ExportTraceServiceResponse, error) {
	for _, s := range r.ResourceSpans {
		var b strings.Builder
		for _, a := range s.Resource.Attributes {
			if strings.HasPrefix(a.Key, "service.") {
				b.WriteString(a.Key + "=" + a.Value.GetStringValue() + " ")
			}
		}
		c.got <- b.String() + s.ScopeSpans[0].Spans[0].Name
	}
	return &coltracepb.ExportTraceServiceResponse{}, nil
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var b bytes.Buffer
	_, _ = b.ReadFrom(r.Body)
	var req coltracepb.ExportTraceServiceRequest
	if err := proto.Unmarshal(b.Bytes(), &req); err != nil || r.URL.Path != "/v1/traces" {
		c.got <- r.URL.Path
	}
	_, _ = c.Export(r.Context(), &req)
}

// TestProtocols checks that spans arrive over both protocols with the attributes of the process.
// The environment overrides these attributes.
func TestProtocols(t *testing.T) {
	c := &collector{got: make(chan string, 10)}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	coltracepb.RegisterTraceServiceServer(g, c)
	go g.Serve(l) //nolint:errcheck // the test stops it
	defer g.Stop()
	h := httptest.NewServer(c)
	defer h.Close()
	for protocol, endpoint := range map[string]string{
		"grpc": "http://" + l.Addr().String(), "http/protobuf": h.URL,
	} {
		clean(t)
		t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)
		t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
		t.Setenv("OTEL_SERVICE_NAME", "leases")
		x, err := Open(slog.New(slog.DiscardHandler), attribute.String("service.name", "leasehold"),
			attribute.String("service.instance.id", "a"))
		if err != nil {
			t.Fatal(err)
		}
		_, s := x.Provider().Tracer("").Start(t.Context(), "put")
		s.End()
		if err := x.provider.ForceFlush(t.Context()); err != nil {
			t.Error(err)
		}
		x.Close()
		if got := <-c.got; got != "service.instance.id=a service.name=leases put" {
			t.Errorf("%s: %s", protocol, got)
		}
	}
}

// hanging is an exporter that lets the test decide the outcome of each batch.
type hanging struct {
	called chan int
	answer chan error
}

func (h *hanging) ExportSpans(_ context.Context, s []sdk.ReadOnlySpan) error {
	h.called <- len(s)
	return <-h.answer
}

func (h *hanging) Shutdown(context.Context) error { return nil }

// TestCollectorHangs checks that while the collector hangs, spans are dropped and counted, no
// caller waits, and Close does not exceed its time limit. Failures are logged once.
func TestCollectorHangs(t *testing.T) {
	clean(t)
	t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", "8")
	t.Setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4")
	h := &hanging{called: make(chan int, 100), answer: make(chan error)}
	var log bytes.Buffer
	x, err := newTracing(t.Context(), h, slog.New(slog.NewTextHandler(&log, nil)), nil)
	if err != nil {
		t.Fatal(err)
	}
	spans := func(n int) {
		for range n {
			_, s := x.Provider().Tracer("").Start(t.Context(), "put")
			s.End()
		}
	}
	spans(4)
	<-h.called
	spans(20) // there is room for 4 in addition to those being sent
	dropped := func(reason string) float64 {
		return testutil.ToFloat64(x.metrics.dropped.WithLabelValues(reason))
	}
	if n := dropped(queueFull); n != 16 {
		t.Errorf("%v spans were dropped, not 16", n)
	}
	h.answer <- errors.New("no")
	<-h.called
	if n := dropped(unsent); n != 4 {
		t.Errorf("%v spans were not taken, not 4", n)
	}
	h.answer <- errors.New("no")
	spans(4)
	<-h.called
	h.answer <- nil
	spans(4)
	<-h.called
	if n := testutil.ToFloat64(x.metrics.sent); n != 4 {
		t.Errorf("%v spans were sent, not 4", n)
	}
	text := log.String()
	if strings.Count(text, "is rejecting spans") != 1 || strings.Count(text, "again") != 1 {
		t.Error(text)
	}
	x.Close()
	close(h.answer)
}
