package relay_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/host"
	"leasehold.dev/internal/relay"
	"leasehold.dev/test/inprocess"
)

// counting is a machine that counts what is read from connections that it makes.
func counting(read *atomic.Int64) *host.Host {
	return &host.Host{
		Boot: func() time.Duration { return 0 },
		Listen: func(_ context.Context, u url.URL) (net.Listener, error) {
			return net.Listen("unix", u.Path)
		},
		Dial: func(ctx context.Context, _, at string) (net.Conn, error) {
			var d net.Dialer
			c, err := d.DialContext(ctx, "unix", strings.TrimPrefix(at, "unix:"))
			return counted{c, read}, err
		},
	}
}

type counted struct {
	net.Conn
	read *atomic.Int64
}

// Read implements net.Conn.
func (c counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.read.Add(int64(n))
	return n, err
}

// sent returns how many messages a member has sent in calls of a method.
func sent(b *testing.B, member *running, labels string) float64 {
	b.Helper()
	text := member.metric(b, "grpc_server_msg_sent_total{"+labels+"}")
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		b.Fatal(err)
	}
	return n
}

// BenchmarkEqualWatches measures what a member sends to a relay behind which many clients watch the
// same key, for each event: messages of its stream, messages of the watches in them, and bytes; and
// the time of all processors, for member, relay and clients together. An event is the next put,
// when all have heard of the one before. Alone are watches that differ in an option, so that they
// are not merged.
func BenchmarkEqualWatches(b *testing.B) {
	for _, watches := range []int{1000, 10_000} {
		for _, alone := range []bool{false, true} {
			name := fmt.Sprintf("watches=%d/alone=%v", watches, alone)
			b.Run(name, func(b *testing.B) { benchmarkWatches(b, watches, alone) })
		}
	}
}

func benchmarkWatches(b *testing.B, watches int, alone bool) {
	m := inprocess.Run(b, 1)
	member := &running{endpoint: m[0].Endpoint()}
	var read atomic.Int64
	r := start(b, relay.Config{Endpoints: inprocess.Endpoints(m), Host: counting(&read)})
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	before := heap()
	heard := make(chan error, watches)
	var conn *grpc.ClientConn
	for i := range watches {
		if i%1000 == 0 {
			conn = dial(b, r.endpoint)
		}
		ask := &pb.WatchRequest{Key: []byte("k")}
		if alone {
			ask.ProgressMs = 3_600_000 - int64(i)
		}
		hear(b, ctx, conn, ask, heard)
	}
	each := float64(heap()-before) / float64(watches)
	const (
		service = `",grpc_service="leasehold.v1.`
		ofRelay = `grpc_method="Relay` + service + `RelayService",grpc_type="bidi_stream"`
		ofWatch = `grpc_method="Watch` + service + `StoreService",grpc_type="server_stream"`
	)
	messages, told, bytes := sent(b, member, ofRelay), sent(b, member, ofWatch), read.Load()
	spent := processors(b)
	b.ResetTimer()
	for range b.N {
		put := &pb.PutRequest{Key: []byte("k"), Value: []byte("v")}
		if _, err := pb.NewStoreServiceClient(conn).Put(ctx, put); err != nil {
			b.Fatal(err)
		}
		for range watches {
			if err := <-heard; err != nil {
				b.Fatal(err)
			}
		}
	}
	b.StopTimer()
	n := float64(b.N)
	b.ReportMetric(float64(processors(b)-spent)/n/1e6, "cpu-ms/event")
	b.ReportMetric((sent(b, member, ofRelay)-messages)/n, "messages/event")
	b.ReportMetric((sent(b, member, ofWatch)-told)/n, "told/event")
	b.ReportMetric(float64(read.Load()-bytes)/n, "bytes/event")
	b.ReportMetric(each, "heap-bytes/watch")
}

// hear begins a watch, and says of each event that it was heard.
func hear(
	b *testing.B, ctx context.Context, conn *grpc.ClientConn, ask *pb.WatchRequest,
	heard chan<- error,
) {
	w, err := pb.NewStoreServiceClient(conn).Watch(ctx, ask)
	if err == nil {
		_, err = w.Recv() // that it has begun
	}
	if err != nil {
		b.Fatal(err)
	}
	go func() {
		for {
			m, err := w.Recv()
			if err != nil || len(m.Events) > 0 {
				heard <- err
			}
			if err != nil {
				return
			}
		}
	}()
}

// heap returns the bytes of what is in use.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// processors returns the time that this process has taken of them.
func processors(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
