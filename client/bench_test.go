package client

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client/store"
	"leasehold.dev/test/process"
)

// counted counts the messages that a client sends.
type counted struct {
	connection
	sent *atomic.Int64
}

func (c counted) Open(ctx context.Context) (pb.StreamService_OpenClient, error) {
	s, err := c.connection.Open(ctx)
	return countedStream{s, c.sent}, err
}

type countedStream struct {
	pb.StreamService_OpenClient
	sent *atomic.Int64
}

func (s countedStream) Send(m *pb.ClientMessage) error {
	s.sent.Add(1)
	return s.StreamService_OpenClient.Send(m)
}

// server runs one durable member as a process, and returns where it serves.
func server(b *testing.B) string {
	b.Helper()
	dir := b.TempDir()
	binary, err := process.Build(b.Context(), dir)
	if err != nil {
		b.Fatal(err)
	}
	addr, peer := process.MustFreeAddr(), process.MustFreeAddr()
	p, err := process.Start(exec.Command(binary, "serve", "--name", "m",
		"--data-dir", filepath.Join(dir, "data"),
		"--listen-client-urls", "http://"+addr, "--advertise-client-urls", "http://"+addr,
		"--listen-peer-urls", "http://"+peer, "--initial-advertise-peer-urls", "http://"+peer,
		"--initial-cluster", "m=http://"+peer,
	), filepath.Join(dir, "log"), "member")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = p.Signal(syscall.SIGKILL)
		<-p.Done()
	})
	return addr
}

// BenchmarkCallers is how fast callers are who each ask again as soon as they are answered,
// and in how many messages a call travels.
func BenchmarkCallers(b *testing.B) {
	e, err := parseEndpoint(server(b), nil)
	if err != nil {
		b.Fatal(err)
	}
	var sent atomic.Int64
	c, err := start(Config{}, []endpoint{e}, func(e endpoint, c *settings) (connection, error) {
		conn, err := dialGRPC(e, c)
		return counted{conn, &sent}, err
	})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	ctx := b.Context()
	if _, err := c.Put(ctx, store.Put{Key: "k", Value: []byte("v")}); err != nil {
		b.Fatal(err)
	}
	for name, call := range map[string]func() error{
		"put": func() error {
			_, err := c.Put(ctx, store.Put{Key: "k", Value: []byte("v")})
			return err
		},
		"get": func() error {
			_, err := c.Get(ctx, "k")
			return err
		},
	} {
		for _, callers := range []int{1, 2, 16, 64, 256} {
			b.Run(fmt.Sprintf("%s/callers=%d", name, callers), func(b *testing.B) {
				before := sent.Load()
				var left atomic.Int64
				left.Store(int64(b.N))
				var all sync.WaitGroup
				for range callers {
					all.Go(func() {
						for left.Add(-1) >= 0 {
							if err := call(); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				all.Wait()
				b.ReportMetric(float64(sent.Load()-before)/float64(b.N), "messages/op")
			})
		}
	}
}
