package server

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	etcdpb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/store"
	"leasehold.dev/test/virtual"
)

// recorded holds the spans that a member has ended.
type recorded struct{ *tracetest.InMemoryExporter }

// traced returns a configuration that records spans. If all is set, calls without a parent trace
// start a new trace. Otherwise, such calls have no spans.
func traced(c Config, all bool) (Config, recorded) {
	root := sdk.NeverSample()
	if all {
		root = sdk.AlwaysSample()
	}
	r := recorded{tracetest.NewInMemoryExporter()}
	c.TracerProvider = sdk.NewTracerProvider(sdk.WithSyncer(r), sdk.WithSampler(sdk.ParentBased(root)))
	return c, r
}

// parentNumber returns a traceparent header with trace ID n.
func parentNumber(n int, flags string) string {
	return fmt.Sprintf("00-%032x-%016x-%s", n, 0xab, flags)
}

type spansByName map[string]tracetest.SpanStub

// byTrace groups spans by the number of their trace, and then by name.
func (r recorded) byTrace(t *testing.T) map[int]spansByName {
	t.Helper()
	all := map[int]spansByName{}
	for _, s := range r.GetSpans() {
		n := 0
		if _, err := fmt.Sscanf(s.SpanContext.TraceID().String(), "%x", &n); err != nil {
			t.Fatal(err)
		}
		if all[n] == nil {
			all[n] = spansByName{}
		}
		if _, ok := all[n][s.Name]; ok {
			t.Errorf("trace %d has two spans %q", n, s.Name)
		}
		all[n][s.Name] = s
	}
	return all
}

// checkTree checks that a trace consists of a call and the given parts, all within the time of the
// call.
func (m spansByName) checkTree(t *testing.T, call string, parts ...string) {
	t.Helper()
	m.checkParts(t, call, parts...)
	if root := m[call]; root.Parent.SpanID().String() != "00000000000000ab" {
		t.Errorf("%s is %+v", call, root)
	}
}

// checkParts is like checkTree but does not check the parent of the call.
func (m spansByName) checkParts(t *testing.T, call string, parts ...string) {
	t.Helper()
	root, ok := m[call]
	for name, s := range m {
		if name != call && (s.Parent.SpanID() != root.SpanContext.SpanID() ||
			s.SpanKind != trace.SpanKindInternal || s.EndTime.Before(s.StartTime) ||
			s.StartTime.Before(root.StartTime) || s.EndTime.After(root.EndTime)) {
			t.Errorf("%s: %s is %+v\nin %+v", call, name, s, root)
		}
	}
	names := slices.Sorted(maps.Keys(m))
	if want := slices.Sorted(slices.Values(append(parts, call))); !slices.Equal(names, want) {
		t.Errorf("%s: %v, want %v", call, names, want)
	}
	if ok && root.SpanKind != trace.SpanKindServer {
		t.Errorf("%s is %+v", call, root)
	}
}

// inOrder checks that each span begins when the previous span ends.
func (m spansByName) inOrder(t *testing.T, names ...string) {
	t.Helper()
	for i, name := range names[1:] {
		a, b := m[names[i]], m[name]
		// tolerate rounding, because wall() reads the clock each time
		if gap := b.StartTime.Sub(a.EndTime); gap.Abs() > time.Microsecond {
			t.Errorf("%s ends at %v, %s begins at %v", names[i], a.EndTime, name, b.StartTime)
		}
	}
}

// attributes returns the attributes of a span.
func attributes(s tracetest.SpanStub) map[attribute.Key]string {
	all := map[attribute.Key]string{}
	for _, a := range s.Attributes {
		all[a.Key] = a.Value.String()
	}
	return all
}

// written lists the parts of a write at the leader.
var written = []string{"queue", "commit", "log sync", "apply"}

// TestTraceOfCalls checks that a sampled call has spans with the right parents, over both APIs and
// JSON. A call that is not sampled, or has an invalid header, has no spans.
func TestTraceOfCalls(t *testing.T) { virtual.Test(t, testTraceOfCalls) }

func testTraceOfCalls(t *testing.T) {
	cfg, recorded := traced(testConfig(shortDir(t)), false)
	r := run(t, cfg)
	socket := r.cfg.URLs.ListenClient[0].Path
	conn := dial(t, socket, nil)
	with := func(n int, flags string, more ...string) context.Context {
		return metadata.AppendToOutgoingContext(t.Context(),
			append(more, "traceparent", parentNumber(n, flags))...)
	}
	kv, store := etcdpb.NewKVClient(conn), pb.NewStoreServiceClient(conn)
	for what, call := range map[string]func() error{
		"put": func() error { return put(t, conn, "k", "traceparent", parentNumber(1, "01")) },
		"json": func() error {
			if text := putJSON(t, socket, nil, "k", "Traceparent", parentNumber(2, "01")); text != "" {
				return fmt.Errorf("%s", text)
			}
			return nil
		},
		"native": func() error {
			_, err := store.Put(with(3, "03", "tracestate", "a=1"), &pb.PutRequest{Key: []byte("k")})
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
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	all := recorded.byTrace(t)
	const etcdPut = "etcdserverpb.KV/Put"
	all[1].checkTree(t, etcdPut, written...)
	all[2].checkTree(t, etcdPut, written...)
	all[3].checkTree(t, "leasehold.v1.StoreService/Put", written...)
	all[4].checkTree(t, "etcdserverpb.KV/Range", "confirm")
	all[10].checkTree(t, etcdPut)
	if len(all) != 5 {
		t.Errorf("%d traces: %v", len(all), all)
	}
	for _, n := range []int{1, 2, 3} {
		all[n].inOrder(t, "queue", "commit", "apply")
	}
	for name, s := range all[3] {
		if state := s.SpanContext.TraceState().String(); state != "a=1" {
			t.Errorf("%s has state %q", name, state)
		}
	}
	if s := all[10][etcdPut]; s.Status.Code == otelcodes.Error {
		t.Errorf("a mistake of the caller is a fault: %+v", s)
	}
}

// TestTraceSampler checks that the sampler decides only about calls without a trace. For other
// calls, the caller's decision applies.
func TestTraceSampler(t *testing.T) { virtual.Test(t, testTraceSampler) }

func testTraceSampler(t *testing.T) {
	cfg, recorded := traced(testConfig(shortDir(t)), true)
	r := run(t, cfg)
	conn := dial(t, r.cfg.URLs.ListenClient[0].Path, nil)
	for key, header := range map[string]string{"traceparent": parentNumber(1, "00"), "": ""} {
		if err := put(t, conn, "k", key, header); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	puts := 0
	for _, s := range recorded.GetSpans() {
		if s.Name == "etcdserverpb.KV/Put" {
			if puts++; s.Parent.IsValid() {
				t.Errorf("%+v", s)
			}
		}
	}
	if puts != 1 {
		t.Errorf("%d puts have spans", puts)
	}
}

type traceKey struct{}

// TestTraceOfStream checks that a request over a stream belongs to the trace in its context, over
// both types of connection, and that its span ends once.
func TestTraceOfStream(t *testing.T) { virtual.Test(t, testTraceOfStream) }

func testTraceOfStream(t *testing.T) {
	for _, grpc := range []bool{false, true} {
		cfg, recorded := traced(testConfig(shortDir(t)), false)
		r := run(t, cfg)
		lh, err := client.New(client.Config{
			Endpoints: []string{r.cfg.URLs.ListenClient[0].String()}, GRPC: grpc,
			Dial: virtual.DialEndpoint,
			TraceParent: func(ctx context.Context) string {
				text, _ := ctx.Value(traceKey{}).(string)
				return text
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		with := func(text string) context.Context {
			return context.WithValue(t.Context(), traceKey{}, text)
		}
		granted, err := lh.GrantOnly(with(parentNumber(1, "01")), client.Grant{TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		ref := leases.Ref{ID: granted.ID, Token: granted.Token}
		_, put := lh.Put(with(parentNumber(2, "01")), store.Put{Key: "k"})
		_, get := lh.Get(with(parentNumber(3, "01")), "k")
		revoked := lh.Revoke(with(parentNumber(4, "01")), ref)
		if err := errors.Join(put, get, revoked); err != nil {
			t.Error(err)
		}
		if _, err := lh.Describe(with(parentNumber(5, "01")), ref); !errors.Is(err, client.ErrLeaseNotFound) {
			t.Error(err)
		}
		for _, none := range []string{parentNumber(6, "00"), "x", "\xff", strings.Repeat("0", 300)} {
			if _, err := lh.Put(with(none), store.Put{Key: "k"}); err != nil {
				t.Error(err)
			}
		}
		if err := errors.Join(lh.Close(), r.stop()); err != nil {
			t.Error(err)
		}
		all := recorded.byTrace(t)
		const open = "leasehold.v1.StreamService/Open/"
		all[1].checkTree(t, open+"grant", written...)
		all[2].checkTree(t, open+"put", written...)
		all[3].checkTree(t, open+"read_range", "confirm")
		all[4].checkTree(t, open+"revoke", written...)
		all[5].checkTree(t, open+"describe", "confirm")
		if code := attributes(all[5][open+"describe"])["rpc.response.status_code"]; code != "NotFound" {
			t.Errorf("the code of what is not found is %v", code)
		}
		if len(all) != 5 {
			t.Errorf("gRPC %v: %d traces: %v", grpc, len(all), all)
		}
	}
}

// asking makes a request part of trace number n.
func asking(n int, body *pb.Request) *pb.Request {
	body.Traceparent = parentNumber(n, "01")
	return body
}

// TestTraceOfCaches checks that renewals, watches and caches have spans over the leasehold.v1
// stream. A write that waits for caches records how many it waited for and which was last.
func TestTraceOfCaches(t *testing.T) { virtual.Test(t, testTraceOfCaches) }

func testTraceOfCaches(t *testing.T) {
	cfg, recorded := traced(testConfig(shortDir(t)), false)
	cfg.Lease.MaxCacheTTL = 5 * time.Minute // the lease must not expire on a slow machine
	r := run(t, cfg)
	conn := dial(t, r.cfg.URLs.ListenClient[0].Path, nil)
	g, err := pb.NewStreamServiceClient(conn).Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := &streamTest{running: r, t: t, grpc: g}
	s.send(&pb.Request{Body: &pb.Request_Grant{Grant: &pb.GrantRequest{
		TtlMs: 300_000, Holds: []*pb.KeyRange{{Key: []byte("c")}},
	}}})
	lease := s.next().GetGrant().GetLease()
	ref := &pb.LeaseRef{Id: lease.GetId(), Token: lease.GetToken()}
	s.send(asking(1, &pb.Request{Body: &pb.Request_Cache{Cache: &pb.CacheRequest{Lease: ref}}}))
	ack := &pb.CacheAck{Lease: ref, OpenTerm: s.next().GetCache().GetTerm()}
	acknowledge := func() { s.send(&pb.Request{Body: &pb.Request_CacheAck{CacheAck: ack}}) }
	acknowledge()
	s.send(asking(2, &pb.Request{Body: &pb.Request_Watch{Watch: &pb.WatchRequest{Key: []byte("w")}}}))
	if m := s.next(); m.GetWatch() == nil {
		t.Fatalf("%v", m)
	}
	s.call(asking(3, &pb.Request{Body: &pb.Request_Renew{
		Renew: &pb.RenewRequest{Leases: []*pb.LeaseRef{ref}},
	}}))
	s.send(&pb.Request{Body: &pb.Request_ReadRange{
		ReadRange: &pb.RangeRequest{Key: []byte("c"), Cache: ref},
	}})
	if term := s.next().GetReadRange().GetCacheTerm(); term != ack.OpenTerm {
		t.Fatalf("read in term %d, the cache is open in %d", term, ack.OpenTerm)
	}
	done := make(chan error, 1)
	go func() { done <- put(t, conn, "c", "traceparent", parentNumber(4, "01")) }()
	invalidation := s.next().GetCache()
	// The core's clock counts milliseconds, and a wait of 0 ms is not recorded.
	wait := r.core.clock.now() + 2
	eventually(t, "time passes", func() bool { return r.core.clock.now() > wait })
	ack.Term, ack.Seq = invalidation.GetTerm(), invalidation.GetSeq()
	acknowledge()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	all := recorded.byTrace(t)
	const open = "leasehold.v1.StreamService/Open/"
	all[1].checkTree(t, open+"cache")
	all[2].checkTree(t, open+"watch")
	all[3].checkTree(t, open+"renew")
	all[4].checkTree(t, "etcdserverpb.KV/Put",
		append(written, "cache wait")...)
	got := attributes(all[4]["cache wait"])
	if got["leasehold.cache_drops"] != "1" ||
		got["leasehold.last_lease"] != fmt.Sprintf("%016x", lease.GetId()) {
		t.Errorf("%v", got)
	}
	if len(all) != 4 {
		t.Errorf("%d traces: %v", len(all), all)
	}
}

// TestTraceOfEtcdStreams checks that each stream of the etcd API has one span. Each call through a
// relay has one span, but the relay's own stream has none.
func TestTraceOfEtcdStreams(t *testing.T) { virtual.Test(t, testTraceOfEtcdStreams) }

func testTraceOfEtcdStreams(t *testing.T) {
	cfg, recorded := traced(testConfig(shortDir(t)), false)
	r := run(t, cfg)
	conn := dial(t, r.cfg.URLs.ListenClient[0].Path, nil)
	ctx := metadata.AppendToOutgoingContext(t.Context(), "traceparent", parentNumber(1, "01"))
	kept, err := etcdpb.NewLeaseClient(conn).LeaseKeepAlive(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := kept.Send(&etcdpb.LeaseKeepAliveRequest{ID: 5}); err != nil {
		t.Fatal(err)
	}
	if m, err := kept.Recv(); err != nil || m.TTL != 0 {
		t.Fatal(m, err)
	}
	ctx = metadata.NewIncomingContext(t.Context(), metadata.Pairs("traceparent", parentNumber(2, "01")))
	tr, info := r.core.tracer, &grpc.UnaryServerInfo{FullMethod: "/s/m"}
	if _, err := tr.Relayed(ctx, nil, info, func(ctx context.Context, _ any) (any, error) {
		call := tr.Begin(ctx, info.FullMethod)
		err := r.node.Confirm(call)
		call.End(err)
		return nil, err
	}); err != nil {
		t.Fatal(err)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	all := recorded.byTrace(t)
	all[1].checkTree(t, "etcdserverpb.Lease/LeaseKeepAlive")
	all[2].checkTree(t, "s/m", "confirm")
	if len(all) != 2 {
		t.Errorf("%d traces: %v", len(all), all)
	}
}

// TestTraceThroughFollower checks the spans of a command sent through a follower. The follower
// records the time spent at the leader and the stages of its own work. The leader's spans belong to
// the same trace.
func TestTraceThroughFollower(t *testing.T) { virtual.Test(t, testTraceThroughFollower) }

func testTraceThroughFollower(t *testing.T) {
	configs, spans := clusterConfigs(t, 3), map[string]recorded{}
	for i, c := range configs {
		configs[i], spans[c.Name] = traced(c, false)
	}
	first, others := runLed(t, configs...) // the leader must not change during the test
	follower := others[0]
	for n, m := range []*running{first, follower} {
		conn := dial(t, m.cfg.URLs.ListenClient[0].Path, nil)
		if err := put(t, conn, "k", "traceparent", parentNumber(n+1, "01")); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range append(others, first) {
		if err := m.stop(); err != nil {
			t.Fatal(err)
		}
	}
	led, through := spans[first.cfg.Name].byTrace(t), spans[follower.cfg.Name].byTrace(t)
	const call = "etcdserverpb.KV/Put"
	led[1].checkTree(t, call, written...)
	through[2].checkTree(t, call, "forward", "commit", "log sync", "apply")
	through[2].inOrder(t, "forward", "commit", "apply")
	led[2].checkParts(t, "leader", written...)
	led[2].inOrder(t, "queue", "commit", "apply")
	part, parent := led[2]["leader"], through[2][call]
	if part.Parent.SpanID() != parent.SpanContext.SpanID() ||
		attributes(part)["leasehold.from"] != fmt.Sprintf("%x", follower.node.member) {
		t.Errorf("%+v\nof %+v", part, parent)
	}
	if len(led) != 2 || len(through) != 1 {
		t.Errorf("%v\n%v", led, through)
	}
}

// TestTracingIsOff checks that without a trace provider no gRPC handler is installed, nor any
// interceptor if slow calls are not logged.
func TestTracingIsOff(t *testing.T) { virtual.Test(t, testTracingIsOff) }

func testTracingIsOff(t *testing.T) {
	for _, after := range []time.Duration{0, time.Second} {
		cfg := testConfig(shortDir(t))
		cfg.GRPC.WarnAfter = after
		r := run(t, cfg)
		if (r.core.tracer == nil) != (after == 0) || len(r.core.tracer.GRPCOptions()) > 0 {
			t.Errorf("slow after %v: %v, %v", after, r.core.tracer, r.core.tracer.GRPCOptions())
		}
	}
}
