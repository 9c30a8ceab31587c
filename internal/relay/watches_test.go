package relay_test

import (
	"context"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

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

// BenchmarkEqualWatches measures what a member sends to a relay behind which a thousand clients
// watch the same key, for each event: messages of its stream, messages of the watches in them, and
// bytes. An event is the next put, when all have heard of the one before.
func BenchmarkEqualWatches(b *testing.B) {
	const watches = 1000
	m := inprocess.Run(b, 1)
	member := &running{endpoint: m[0].Endpoint()}
	var read atomic.Int64
	r := start(b, relay.Config{Endpoints: inprocess.Endpoints(m), Host: counting(&read)})
	conn := dial(b, r.endpoint)
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	heard := make(chan error, watches)
	for range watches {
		w, err := pb.NewStoreServiceClient(conn).Watch(ctx, &pb.WatchRequest{Key: []byte("k")})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := w.Recv(); err != nil { // that it has begun
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
	const (
		service = `",grpc_service="leasehold.v1.`
		ofRelay = `grpc_method="Relay` + service + `RelayService",grpc_type="bidi_stream"`
		ofWatch = `grpc_method="Watch` + service + `StoreService",grpc_type="server_stream"`
	)
	messages, told, bytes := sent(b, member, ofRelay), sent(b, member, ofWatch), read.Load()
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
	b.ReportMetric((sent(b, member, ofRelay)-messages)/n, "messages/event")
	b.ReportMetric((sent(b, member, ofWatch)-told)/n, "told/event")
	b.ReportMetric(float64(read.Load()-bytes)/n, "bytes/event")
}
