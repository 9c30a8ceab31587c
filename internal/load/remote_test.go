package load

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
)

// ceilingClient starts a server that stores nothing and returns a client connected to it.
func ceilingClient(t *testing.T, opts ...grpc.DialOption) *Client {
	t.Helper()
	l := bufconn.Listen(1 << 20)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = serveCeiling(ctx, l, nil) }) // if it fails, so does the test
	t.Cleanup(func() { cancel(); wg.Wait() })
	opts = append(opts, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return l.DialContext(ctx)
		}))
	conn, err := grpc.NewClient("passthrough:///ceiling", opts...)
	if err != nil {
		t.Fatal(err)
	}
	c := Over([]*grpc.ClientConn{conn})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// TestRemote measures a server that is already running. Each operation runs the requested number of
// times, CPU costs come from Usage and byte counts from the connection, and all granted leases are
// revoked. The server stores nothing, so expire is left out here.
func TestRemote(t *testing.T) {
	traffic := &Traffic{}
	cpu := time.Duration(0)
	var reports []string
	r := &Remote{
		Client: ceilingClient(t, grpc.WithStatsHandler(traffic)), Endpoints: []string{"here"},
		Only: []string{"grant", "put", "read", "renew"}, Duration: 10 * time.Minute, Count: 640,
		Callers: 16, Traffic: traffic,
		Usage: func(context.Context) (Usage, error) {
			cpu += 64 * time.Millisecond
			return Usage{CPU: cpu}, nil
		},
		Progress: func(name string, done float64) {
			if done < 0 || done > 1 {
				t.Errorf("%s: %v of it is done", name, done)
			}
			reports = append(reports, name)
		},
	}
	rep, err := r.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range r.Only {
		o, ok := rep.Find(name)
		if !ok || o.Count != 640 || o.Rate <= 0 || o.P50 > o.P99 || o.P99 > o.Max || o.CPU != 100 {
			t.Errorf("%s: %+v", name, o)
		}
		if o.Bytes < 50 || o.Bytes > 1000 {
			t.Errorf("%s takes %v bytes", name, o.Bytes)
		}
		if !slices.Contains(reports, name) {
			t.Errorf("nothing was told of %s", name)
		}
	}
	if _, ok := rep.Find("expire"); ok || rep.Left != 0 || rep.LeaseBytes != 0 {
		t.Errorf("%+v", rep)
	}
}

// TestRemoteStops cancels a run partway through. The run must return the reason and clean up.
func TestRemoteStops(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	r := &Remote{
		Client: ceilingClient(t), Duration: time.Minute, Count: 1_000_000, Callers: 4,
		Progress: func(string, float64) { cancel(fmt.Errorf("enough")) },
	}
	rep, err := r.Run(ctx)
	if err == nil || err.Error() != "enough" {
		t.Errorf("it ends with %v", err)
	}
	if len(r.leases) == 0 || rep.Left != 0 || len(rep.Operations) != 0 {
		t.Errorf("%d leases, report %+v", len(r.leases), rep)
	}
}

// TestRemoteRefuses checks that a run that cannot be measured is rejected before anything is sent
// to the server.
func TestRemoteRefuses(t *testing.T) {
	for want, change := range map[string]func(*Remote){
		"unknown operation": func(r *Remote) { r.Only = []string{"delete"} },
		"above 0":           func(r *Remote) { r.Duration = 0 },
		"at most 10m":       func(r *Remote) { r.Duration = time.Hour },
		"1 to 1000000":      func(r *Remote) { r.Count = 0 },
		"1 to 4096":         func(r *Remote) { r.Callers = 5000 },
	} {
		r := &Remote{Duration: time.Second, Count: 1, Callers: 1}
		change(r)
		if _, err := r.Run(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}

// TestMetricsUsage reads pages as Prometheus clients write them.
func TestMetricsUsage(t *testing.T) {
	page := "# HELP x y\nother 7\nprocess_cpu_seconds_total 1.25\nprocess_resident_memory_bytes " +
		"4.5e+07\n"
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/metrics":
			fmt.Fprint(w, page)
		case "/one", "/same":
			fmt.Fprint(w, page, "process_start_time_seconds 1.7e+09\n")
		case "/empty":
		default:
			http.NotFound(w, r)
		}
	}))
	defer s.Close()
	u, err := MetricsUsage(t.Context(), s.Client(), []string{s.URL + "/metrics", s.URL + "/metrics"})
	if err != nil || u != (Usage{CPU: 2500 * time.Millisecond, RSS: 90_000_000}) {
		t.Errorf("%+v, %v", u, err)
	}
	u, err = MetricsUsage(t.Context(), s.Client(), []string{s.URL + "/one", s.URL + "/same"})
	if err != nil || u != (Usage{CPU: 1250 * time.Millisecond, RSS: 45_000_000}) {
		t.Errorf("two pages of one process: %+v, %v", u, err)
	}
	for _, path := range []string{"/empty", "/nothing"} {
		if _, err := MetricsUsage(t.Context(), s.Client(), []string{s.URL + path}); err == nil {
			t.Errorf("%s has figures", path)
		}
	}
}

// TestWatchful measures renewals on a server that answers immediately: none are lost, and the
// reported progress never decreases.
func TestWatchful(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		last := 0.0
		w, err := MeasureConditions(t.Context(), ceilingClient(t), 300*time.Millisecond, func(done float64) {
			if done < last {
				t.Errorf("%v after %v", done, last)
			}
			last = done
		})
		if err != nil {
			t.Fatal(err)
		}
		if w.Sent == 0 || w.Lost != 0 || int(w.RoundTrip.Count()) != w.Sent || last == 0 {
			t.Errorf("%d sent, %d lost, %d answers, %v told", w.Sent, w.Lost, w.RoundTrip.Count(), last)
		}
		sum := uint64(0)
		for upper, n := range w.RoundTrip.Bins() {
			if upper < 0 {
				t.Errorf("a bin up to %v", upper)
			}
			sum += uint64(n)
		}
		if sum != w.RoundTrip.Count() {
			t.Errorf("bins count %d, the histogram %d", sum, w.RoundTrip.Count())
		}
	})
}

// TestWatchfulGone covers a server that ends the lease during the measurement.
func TestWatchfulGone(t *testing.T) {
	w := &conditionProbe{stream: goneStream{}, sent: make(chan time.Time, 1)}
	w.sent <- time.Now()
	close(w.sent)
	w.receive()
	if w.failed == nil || !strings.Contains(w.failed.Error(), "ended") {
		t.Errorf("it says %v", w.failed)
	}
}

// goneStream is a stream whose responses say that the lease does not exist.
type goneStream struct{ pb.Lease_LeaseKeepAliveClient }

func (goneStream) Recv() (*pb.LeaseKeepAliveResponse, error) {
	return &pb.LeaseKeepAliveResponse{}, nil
}
