package server

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	etcdpb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/trace/tracetest"
	"leasehold.dev/test/virtual"
)

// traced returns a configuration whose spans go to a collector.
func traced(t testing.TB, c Config, collector http.Handler) Config {
	t.Helper()
	server := &httptest.Server{Listener: virtual.Port(t), Config: &http.Server{
		Handler: collector, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0),
	}}
	server.Start()
	t.Cleanup(server.Close)
	c.Trace.Endpoint = server.URL
	return c
}

// parentNumber returns a header traceparent, with a trace of its own for each number.
func parentNumber(n int, flags string) string {
	return fmt.Sprintf("00-%032x-%016x-%s", n, 0xab, flags)
}

// collected returns the spans that have come, each once: when a member stops while it sends, some
// come again, as OTLP allows.
func collected(t *testing.T, c *tracetest.Collector) (list []tracetest.Span) {
	t.Helper()
	all, err := c.Spans()
	if err != nil {
		t.Fatal(err)
	}
	return once(all)
}

// once returns each of some spans once.
func once(all []tracetest.Span) (list []tracetest.Span) {
	type id struct{ trace, span string }
	seen := map[id]bool{}
	for _, s := range all {
		if x := (id{s.Trace, s.ID}); !seen[x] {
			seen[x] = true
			list = append(list, s)
		}
	}
	return list
}

// awaitCalls waits until so many calls whose names begin so have come, and with them their parts. A
// member that stops sends what is left for a second only.
func awaitCalls(t *testing.T, c *tracetest.Collector, calls int, name string) {
	t.Helper()
	if _, err := c.Wait(t.Context().Done(), func(all []tracetest.Span) bool {
		n := 0
		for _, s := range once(all) {
			if s.Kind == 2 && strings.HasPrefix(s.Name, name) {
				n++
			}
		}
		return n >= calls
	}); err != nil {
		t.Fatal(err)
	}
}

// byTrace returns the spans of each trace by their names, with the number of the trace: those of
// some members, or of all.
func byTrace(
	t *testing.T, c *tracetest.Collector, members ...string,
) map[int]map[string]tracetest.Span {
	t.Helper()
	all := map[int]map[string]tracetest.Span{}
	for _, s := range collected(t, c) {
		if of, _ := s.Resource["service.instance.id"].(string); len(members) > 0 &&
			!slices.Contains(members, of) {
			continue
		}
		n := 0
		if _, err := fmt.Sscanf(s.Trace, "%x", &n); err != nil {
			t.Fatal(err)
		}
		if all[n] == nil {
			all[n] = map[string]tracetest.Span{}
		}
		if _, ok := all[n][s.Name]; ok {
			t.Errorf("trace %d has two spans %q", n, s.Name)
		}
		all[n][s.Name] = s
	}
	return all
}

// checkTree checks that a trace has a call with some parts, all of them in its time.
func checkTree(t *testing.T, spans map[string]tracetest.Span, call string, parts ...string) {
	t.Helper()
	checkParts(t, spans, call, parts...)
	if root := spans[call]; root.Parent != "00000000000000ab" {
		t.Errorf("%s is %+v", call, root)
	}
}

// checkParts is checkTree whatever the call is a part of.
func checkParts(t *testing.T, spans map[string]tracetest.Span, call string, parts ...string) {
	t.Helper()
	root, ok := spans[call]
	var names []string
	for name, s := range spans {
		if name == call {
			continue
		}
		names = append(names, name)
		if s.Parent != root.ID || s.Trace != root.Trace || s.Kind != 1 || s.End < s.Start ||
			s.Start < root.Start || s.End > root.End {
			t.Errorf("%s: %s is %+v\nin %+v", call, name, s, root)
		}
	}
	slices.Sort(names)
	slices.Sort(parts)
	if !ok || !slices.Equal(names, parts) {
		t.Errorf("%s: %v, want %v", call, names, parts)
	}
	if root.Kind != 2 {
		t.Errorf("%s is %+v", call, root)
	}
}

// inOrder checks that spans follow each other without a gap.
func inOrder(t *testing.T, spans map[string]tracetest.Span, names ...string) {
	t.Helper()
	for i, name := range names[1:] {
		if a, b := spans[names[i]], spans[name]; a.End != b.Start {
			t.Errorf("%s ends at %d, %s begins at %d", names[i], a.End, name, b.Start)
		}
	}
}

// Goal: a call that its caller samples gives spans with the right parents, over both APIs and JSON;
// one that its caller does not sample, or whose header is none, gives none. Method: such calls,
// and what the collector has when these have come and the member has stopped.
func TestTraceOfCalls(t *testing.T) { virtual.Test(t, testTraceOfCalls) }

func testTraceOfCalls(t *testing.T) {
	c := &tracetest.Collector{}
	cfg := traced(t, testConfig(shortDir(t)), c)
	r := run(t, cfg)
	socket := r.cfg.URLs.ListenClient[0].Path
	conn := dial(t, socket, nil)
	good := parentNumber(1, "01")
	with := func(n int, flags string, more ...string) context.Context {
		return metadata.AppendToOutgoingContext(t.Context(),
			append(more, "traceparent", parentNumber(n, flags))...)
	}
	kv, store := etcdpb.NewKVClient(conn), pb.NewStoreServiceClient(conn)
	for what, call := range map[string]func() error{
		"put": func() error { return put(t, conn, "k", "traceparent", good) },
		"json": func() error {
			if text := putJSON(t, socket, nil, "k", "Traceparent", parentNumber(2, "01")); text != "" {
				return fmt.Errorf("%s", text)
			}
			return nil
		},
		"native": func() error {
			_, err := store.Put(with(3, "03", "tracestate", "a=1", "tracestate", "b=2"),
				&pb.PutRequest{Key: []byte("k")})
			return err
		},
		"read": func() error {
			_, err := kv.Range(with(4, "01"), &etcdpb.RangeRequest{Key: []byte("k")})
			return err
		},
		"unsampled": func() error { return put(t, conn, "k", "traceparent", parentNumber(5, "00")) },
		"alone":     func() error { return put(t, conn, "k", "", "") },
		"two": func() error {
			return put(t, conn, "k", "traceparent", parentNumber(6, "01")+","+parentNumber(7, "01"))
		},
		"twice": func() error {
			_, err := kv.Put(with(8, "01", "traceparent", parentNumber(9, "01")),
				&etcdpb.PutRequest{Key: []byte("k")})
			return err
		},
		"zero":  func() error { return put(t, conn, "k", "traceparent", parentNumber(0, "01")) },
		"other": func() error { return put(t, conn, "k", "traceparent", strings.Repeat("0-", 1<<10)) },
	} {
		if err := call(); err != nil {
			t.Fatal(what, err)
		}
	}
	if _, err := kv.Put(with(10, "01"), &etcdpb.PutRequest{}); err == nil {
		t.Fatal("an empty key is taken")
	}
	awaitCalls(t, c, 5, "")
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	all := byTrace(t, c)
	written := []string{"admission", "commit", "log sync", "apply", "answer"}
	const etcdPut = "etcdserverpb.KV/Put"
	checkTree(t, all[1], etcdPut, written...)
	checkTree(t, all[2], etcdPut, written...)
	checkTree(t, all[3], "leasehold.v1.StoreService/Put", written...)
	checkTree(t, all[4], "etcdserverpb.KV/Range", "confirm", "answer")
	checkTree(t, all[10], etcdPut)
	if len(all) != 5 {
		t.Errorf("%d traces: %v", len(all), all)
	}
	for _, n := range []int{1, 2, 3} {
		inOrder(t, all[n], "admission", "commit", "apply", "answer")
		if sync, commit := all[n]["log sync"], all[n]["commit"]; sync.Start < commit.Start ||
			sync.End > commit.End {
			t.Errorf("trace %d: sync %+v not in %+v", n, sync, commit)
		}
		if all[n]["admission"].Attributes["leasehold.leader"] != true {
			t.Errorf("%+v", all[n]["admission"])
		}
	}
	for name, s := range all[3] {
		if s.State != "a=1,b=2" {
			t.Errorf("%s has state %q", name, s.State)
		}
	}
	want := map[string]any{
		"service.name": "leasehold", "service.instance.id": fmt.Sprintf("%x", r.node.member),
	}
	for key, value := range want {
		if got := all[1][etcdPut].Resource[key]; got != value {
			t.Errorf("%s is %v", key, got)
		}
	}
	want = map[string]any{
		"rpc.system": "grpc", "rpc.service": "etcdserverpb.KV", "rpc.method": "Put",
		"rpc.grpc.status_code": int64(3),
	}
	if s := all[10][etcdPut]; !reflect.DeepEqual(s.Attributes, want) || s.Status != 0 {
		t.Errorf("%+v", s)
	}
}

// Goal: of calls that belong to no trace the rate decides; of others the caller.
func TestTraceRate(t *testing.T) { virtual.Test(t, testTraceRate) }

func testTraceRate(t *testing.T) {
	c := &tracetest.Collector{}
	cfg := traced(t, testConfig(shortDir(t)), c)
	cfg.Trace.SampleRate, cfg.Trace.ServiceName = 1, "leases"
	r := run(t, cfg)
	conn := dial(t, r.cfg.URLs.ListenClient[0].Path, nil)
	for key, header := range map[string]string{"traceparent": parentNumber(1, "00"), "": ""} {
		if err := put(t, conn, "k", key, header); err != nil {
			t.Fatal(err)
		}
	}
	const call = "etcdserverpb.KV/Put"
	awaitCalls(t, c, 1, call)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	puts := 0
	for _, s := range collected(t, c) {
		if s.Name == call {
			puts++
			if s.Parent != "" || s.Resource["service.name"] != "leases" {
				t.Errorf("%+v", s)
			}
		}
	}
	if puts != 1 {
		t.Errorf("%d puts have spans", puts)
	}
}

// Goal: a collector that hangs, or that is away, neither fails calls nor keeps the member from
// stopping, and what is dropped is counted. Method: more spans than the queue has room for.
func TestTraceCollectorHangs(t *testing.T) { virtual.Test(t, testTraceCollectorHangs) }

func testTraceCollectorHangs(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)
	for name, collector := range map[string]http.Handler{
		"hangs":   http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hang }),
		"is away": nil,
	} {
		cfg := testConfig(shortDir(t))
		cfg.Trace.Endpoint = "http://127.0.0.1:1" // nobody listens there, nor does a test meanwhile
		if collector != nil {
			cfg = traced(t, cfg, collector)
		}
		cfg.Trace.SampleRate = 1
		r := run(t, cfg)
		kv := etcdpb.NewKVClient(dial(t, r.cfg.URLs.ListenClient[0].Path, nil))
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				for range 50 {
					_, err := kv.Range(t.Context(), &etcdpb.RangeRequest{Key: []byte("k")})
					if err != nil {
						t.Error(name, err)
						return
					}
				}
			})
		}
		wg.Wait()
		if droppedSpans(t, r) == 0 {
			t.Errorf("%s: no span was dropped", name)
		}
		before := droppedSpans(t, r)
		if err := r.stop(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if droppedSpans(t, r) <= before {
			t.Errorf("%s: the spans that are left are not counted as dropped", name)
		}
	}
}

func droppedSpans(t *testing.T, r *running) (n float64) {
	t.Helper()
	families, err := r.core.metrics.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "leasehold_trace_spans_dropped_total" {
			for _, m := range f.GetMetric() {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}

// Goal: histograms have exemplars of calls that were traced, in OpenMetrics, and only with tracing.
func TestExemplars(t *testing.T) { virtual.Test(t, testExemplars) }

func testExemplars(t *testing.T) {
	for _, with := range []bool{true, false} {
		cfg := testConfig(shortDir(t))
		if with {
			cfg = traced(t, cfg, &tracetest.Collector{})
		}
		r := run(t, cfg)
		socket := r.cfg.URLs.ListenClient[0].Path
		if err := put(t, dial(t, socket, nil), "k", "traceparent", parentNumber(7, "01")); err != nil {
			t.Fatal(err)
		}
		text := openMetrics(t, socket)
		const want = `# {trace_id="00000000000000000000000000000007"}`
		for _, name := range []string{"log_sync", "apply"} {
			has := false
			for line := range strings.Lines(text) {
				has = has || strings.HasPrefix(line, "leasehold_"+name+"_duration_seconds_bucket") &&
					strings.Contains(line, want)
			}
			if has != with {
				t.Errorf("tracing %v: %s has an exemplar: %v", with, name, has)
			}
		}
		if strings.Contains(text, "# EOF") != with {
			t.Errorf("tracing %v: the format changes", with)
		}
	}
}

func openMetrics(t *testing.T, socket string) string {
	t.Helper()
	_, text := getPageAs(t, "application/openmetrics-text; version=1.0.0", socket, "/metrics")
	return text
}

// The time at which an index came is that of the first mark that has it, unless that is forgotten,
// or the log was written anew, or it was before anybody asked.
func TestPlace(t *testing.T) { virtual.Test(t, testPlace) }

func testPlace(t *testing.T) {
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
	note(6, 40) // of another leader
	is(5, 0, 40)
	is(9, 0, 0)
	for i := range uint64(2000) {
		note(100+i, int64(100+i))
	}
	is(2000, 0, 2000)
	is(100, 0, 0)
	is(50, 0, 0)
}

// BenchmarkTrace is what tracing adds to a put, by the share that is sampled; -1 is without.
// The collector is in this process, and its work counts.
func BenchmarkTrace(b *testing.B) {
	for _, rate := range []float64{-1, 0, 0.01, 1} {
		b.Run(fmt.Sprint(rate), func(b *testing.B) {
			cfg := testConfig(shortDir(b))
			if rate >= 0 {
				cfg = traced(b, cfg, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
				}))
				cfg.Trace.SampleRate = rate
			}
			r := run(b, cfg)
			benchPuts(b, dial(b, r.cfg.URLs.ListenClient[0].Path, nil))
		})
	}
}

// benchPuts puts keys, by as many clients at a time as share an entry of the log well.
func benchPuts(b *testing.B, conn *grpc.ClientConn) {
	const clients = 64
	kv := etcdpb.NewKVClient(conn)
	req := &etcdpb.PutRequest{Key: []byte("app/orders/00000042"), Value: make([]byte, 256)}
	before := usage(b)
	b.SetParallelism(clients)
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			if _, err := kv.Put(b.Context(), req); err != nil {
				b.Error(err)
				return
			}
		}
	})
	after := usage(b)
	cpu := after.Utime.Nano() + after.Stime.Nano() - before.Utime.Nano() - before.Stime.Nano()
	b.ReportMetric(float64(cpu)/float64(b.N), "cpu-ns/op")
}
