package otlp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/encoding/protowire"

	"leasehold.dev/internal/trace"
	"leasehold.dev/internal/trace/tracetest"
)

// spansOf returns so many spans.
func spansOf(n int) (all []trace.Span) {
	for i := range n {
		all = append(all, trace.Span{
			Trace: trace.NewID(1, uint64(i)), ID: trace.NewSpanID(uint64(i)), Name: "n", Kind: trace.Server,
		})
	}
	return all
}

// counts are the metrics of an exporter.
type counts struct{ sent, full, refused, unsent float64 }

func countsOf(e *Exporter) counts {
	value := func(c prometheus.Metric) float64 {
		var m dto.Metric
		if err := c.Write(&m); err != nil {
			panic(err)
		}
		return m.GetCounter().GetValue()
	}
	of := func(reason string) float64 { return value(e.dropped.WithLabelValues(reason)) }
	return counts{value(e.sent), of(queueFull), of(refused), of(unsent)}
}

// newExporter returns an exporter, and its log.
func newExporter(t *testing.T, o Options) (*Exporter, *bytes.Buffer) {
	t.Helper()
	var log bytes.Buffer
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	e, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return e, &log
}

// Goal: spans arrive over HTTPS, with headers that may be replaced, in batches, and the last ones
// at the end. Method: a real server, and an exporter that ends at once.
func TestSend(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "headers")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("Authorization: Bearer a:b\n\nX-Scope: 1\r\n")
	var mu sync.Mutex
	var headers []http.Header
	c := &tracetest.Collector{Before: func(_ http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		headers = append(headers, r.Header)
		write("Authorization: second\n")
		return false
	}}
	server := httptest.NewTLSServer(c)
	defer server.Close()
	e, log := newExporter(t, Options{
		Settings: Settings{Endpoint: server.URL + "/", HeadersFile: file}, Release: "1.2.3",
		Resource: []trace.Attribute{{Key: "service.name", Value: "leasehold"}},
	})
	e.client, e.last = server.Client(), time.Minute // however busy the machine is
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e.Add(spansOf(maxBatch + 1)...)
	e.Run(ctx)
	spans, err := c.Spans()
	if err != nil || len(spans) != maxBatch+1 {
		t.Fatalf("%d spans, %v; %s", len(spans), err, log)
	}
	if s := spans[0]; s.Resource["service.name"] != "leasehold" || s.Release != "1.2.3" {
		t.Errorf("%+v", s)
	}
	if len(headers) != 2 || headers[0].Get("Authorization") != "Bearer a:b" ||
		headers[0].Get("X-Scope") != "1" || headers[0].Get("User-Agent") != "leasehold/1.2.3" ||
		headers[1].Get("Authorization") != "second" {
		t.Errorf("%v", headers)
	}
	if got := countsOf(e); got != (counts{sent: maxBatch + 1}) || log.Len() > 0 {
		t.Errorf("%+v, %s", got, log)
	}
	e.Add(spansOf(2)...)
	if got := countsOf(e); got.unsent+got.full != 2 {
		t.Errorf("after the end: %+v", got)
	}
}

// A server whose certificate the system does not trust gets nothing.
func TestStranger(t *testing.T) {
	t.Parallel()
	c := &tracetest.Collector{}
	server := httptest.NewUnstartedServer(c)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	server.StartTLS()
	defer server.Close()
	e, log := newExporter(t, Options{Settings: Settings{Endpoint: server.URL}})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	e.Add(spansOf(1)...)
	e.Run(ctx)
	spans, err := c.Spans()
	if err != nil || len(spans) != 0 || countsOf(e) != (counts{unsent: 1}) {
		t.Errorf("%d spans, %v, %+v, %s", len(spans), err, countsOf(e), log)
	}
}

// transport answers requests without a network, so that time may be virtual.
type transport func(r *http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func answer(code int, header http.Header, body string) (*http.Response, error) {
	return &http.Response{
		StatusCode: code, Header: header, Body: io.NopCloser(strings.NewReader(body)),
	}, nil
}

// virtual runs an exporter for a while in virtual time, with spans that are there at the beginning.
func virtual(t *testing.T, spans int, while time.Duration, f transport) (counts, string) {
	t.Helper()
	var got counts
	var text string
	synctest.Test(t, func(t *testing.T) {
		e, log := newExporter(t, Options{Settings: Settings{Endpoint: "http://collector"}})
		e.client.Transport = f
		ctx, cancel := context.WithTimeout(t.Context(), while)
		defer cancel()
		e.Add(spansOf(spans)...)
		e.Run(ctx)
		got, text = countsOf(e), log.String()
	})
	return got, text
}

// Goal: what may be taken later is sent again, with pauses that grow or that the collector wants;
// what may not is dropped. Method: answers in their order, and the times between them.
func TestAgain(t *testing.T) {
	t.Parallel()
	after := func(text string) http.Header { return http.Header{"Retry-After": {text}} }
	for _, c := range []struct {
		name  string
		codes []int
		after http.Header
		fail  bool
		want  []time.Duration // before each try but the first
		sent  bool
	}{
		{name: "taken", codes: []int{200}, sent: true},
		{
			name: "later", codes: []int{429, 502, 503, 504, 200}, sent: true,
			want: []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second},
		},
		{
			name: "when it says", codes: []int{429, 200}, after: after("7"), sent: true,
			want: []time.Duration{7 * time.Second},
		},
		{
			name: "no sooner than usual", codes: []int{429, 200}, after: after("-7"), sent: true,
			want: []time.Duration{time.Second},
		},
		{
			name: "no later than patience", codes: []int{503, 200}, after: after("86400"), sent: true,
			want: []time.Duration{patience},
		},
		{name: "never", codes: []int{400}},
		{name: "elsewhere", codes: []int{307}, after: http.Header{"Location": {"http://other/"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var times []time.Time
			got, log := virtual(t, 3, 2*time.Minute, func(r *http.Request) (*http.Response, error) {
				times = append(times, time.Now())
				if r.URL.Host != "collector" || len(times) > len(c.codes) {
					return nil, errors.New("not this one")
				}
				return answer(c.codes[len(times)-1], c.after, "")
			})
			if len(times) != len(c.codes) {
				t.Fatalf("%d tries; %s", len(times), log)
			}
			for i, want := range c.want {
				if d := times[i+1].Sub(times[i]); d != want {
					t.Errorf("try %d after %v", i+2, d)
				}
			}
			want := counts{refused: 3}
			if c.sent {
				want = counts{sent: 3}
			}
			if got != want {
				t.Errorf("%+v; %s", got, log)
			}
			if told := strings.Count(log, "does not take spans"); told > 1 ||
				(told == 1) == (len(c.codes) == 1 && c.sent) {
				t.Errorf("it is told %d times:\n%s", told, log)
			}
			if len(c.want) > 0 && !strings.Contains(log, "takes spans again") {
				t.Errorf("it is not told that all is well:\n%s", log)
			}
		})
	}
}

// A date says when to come again, too.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for text, want := range map[string]time.Duration{
		"": 0, "5": 5 * time.Second, "soon": 0, "99999999999999": 0,
		now.Add(time.Hour).Format(http.TimeFormat): time.Hour,
	} {
		if got := retryAfter(text, now); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// Goal: a collector that is away or hangs costs spans, and nobody waits. Method: one that never
// answers; spans that are added are counted as dropped when the queue is full.
func TestHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, log := newExporter(t, Options{Settings: Settings{Endpoint: "http://collector"}})
		tries := 0
		e.client.Transport = transport(func(r *http.Request) (*http.Response, error) {
			tries++
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); e.Run(ctx) }()
		begin := time.Now()
		for range 2*maxQueued + 1 {
			e.Add(spansOf(1)...)
		}
		if time.Since(begin) != 0 {
			t.Errorf("somebody waited")
		}
		<-time.After(patience + timeout)
		synctest.Wait()
		got := countsOf(e)
		if tries < 3 || got.full < maxQueued-maxBatch || got.unsent != maxBatch || got.sent != 0 {
			t.Errorf("%d tries, %+v", tries, got)
		}
		begin = time.Now()
		cancel()
		<-done
		if d := time.Since(begin); d > lastPatience {
			t.Errorf("it ends after %v", d)
		}
		if got = countsOf(e); got.full+got.unsent != 2*maxQueued+1 {
			t.Errorf("not all are counted: %+v", got)
		}
		if strings.Count(log.String(), "does not take spans") != 1 {
			t.Errorf("%s", log)
		}
	})
}

// Goal: all that is left at the end is counted, also what was being sent. Method: a collector that
// never answers, and spans that fill the queue again when a batch was taken from it.
func TestLeftAreCounted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, _ := newExporter(t, Options{Settings: Settings{Endpoint: "http://collector"}})
		e.client.Transport = transport(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); e.Run(ctx) }()
		e.Add(spansOf(maxBatch)...)
		synctest.Wait()
		e.Add(spansOf(maxQueued)...)
		cancel()
		<-done
		if got := countsOf(e); got != (counts{unsent: maxBatch + maxQueued}) {
			t.Errorf("%+v", got)
		}
	})
}

// Spans that the collector refuses in a batch that it takes are counted as such, however many it
// says.
func TestPartly(t *testing.T) {
	t.Parallel()
	for says, want := range map[uint64]counts{
		2: {sent: 1, refused: 2}, 1 << 31: {refused: 3}, 1 << 40: {refused: 3},
	} {
		part := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), says)
		body := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), part)
		got, log := virtual(t, 3, time.Minute, func(*http.Request) (*http.Response, error) {
			return answer(200, nil, string(body))
		})
		if got != want || !strings.Contains(log, "did not take") {
			t.Errorf("%d: %+v; %s", says, got, log)
		}
	}
}

// A full batch is sent at once, others after a while.
func TestBatches(t *testing.T) {
	t.Parallel()
	for spans, want := range map[int]time.Duration{1: every, maxBatch: 0} {
		at := time.Duration(-1)
		synctest.Test(t, func(t *testing.T) {
			e, _ := newExporter(t, Options{Settings: Settings{Endpoint: "http://collector"}})
			begin := time.Now()
			e.client.Transport = transport(func(*http.Request) (*http.Response, error) {
				at = time.Since(begin)
				return answer(200, nil, "")
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			e.Add(spansOf(spans)...)
			e.Run(ctx)
		})
		if at != want {
			t.Errorf("%d spans are sent after %v", spans, at)
		}
	}
}

// What is no endpoint, and what are no headers, is told at once.
func TestBad(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", "localhost:4318", "ftp://x", "http://", "http://u:p@x", "http://x?a=b", "http://x#f",
		"http://\x00", "127.0.0.1:4318", "http://[::1", "http://u:p%ss@x", "http://x:99999",
	} {
		_, err := New(Options{Settings: Settings{Endpoint: text}})
		if err == nil {
			t.Errorf("%q is taken by New", text)
		} else if told := err.Error(); strings.Contains(told, "p%ss") ||
			!strings.Contains(told, "http://HOST:PORT") && !strings.Contains(told, "a host and a path") {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{"http://x", "https://x:4318/path"} {
		if _, err := target(text); err != nil {
			t.Error(err)
		}
	}
	file := filepath.Join(t.TempDir(), "headers")
	o := Options{Settings: Settings{Endpoint: "http://x", HeadersFile: file}}
	if _, err := New(o); err == nil {
		t.Error("a file that is not there is taken")
	} else if !strings.Contains(err.Error(), "--trace-headers-file") {
		t.Errorf("a file that is not there: %v", err)
	}
	for _, text := range []string{"Name", ": x", "A B: x", "A: \x01"} {
		if err := os.WriteFile(file, []byte("Good: 1\n"+text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), "line 2") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// Settings that cannot be are told by the flag that gives them.
func TestSettings(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*Settings){
		"":                     func(*Settings) {},
		"--trace-sample-rate":  func(s *Settings) { s.SampleRate = math.NaN() },
		"from 0 to 1":          func(s *Settings) { s.SampleRate = 1.5 },
		"--trace-service-name": func(s *Settings) { s.ServiceName = "" },
		"--trace-endpoint":     func(s *Settings) { s.Endpoint = "localhost" },
		"need":                 func(s *Settings) { s.Endpoint, s.SampleRate = "", 1 },
		"--trace-headers-file": func(s *Settings) { s.Endpoint, s.HeadersFile = "", "x" },
	} {
		s := Defaults()
		s.Endpoint = "http://localhost:4318"
		change(&s)
		err := s.Check()
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
	if s := Defaults(); s.Check() != nil {
		t.Error(s.Check())
	}
}
