package client

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/direct"
	"leasehold.dev/internal/listen"
	"leasehold.dev/internal/wire"
)

// TestGRPCInstead checks that a client falls back to gRPC, with and without TLS, if a member or
// proxy supports nothing else. If so configured, the client uses only gRPC.
func TestGRPCInstead(t *testing.T) {
	for name, c := range map[string]struct {
		config         Config
		direct, secure bool
		mute           bool // the server accepts unknown protocols and does not answer
		want           string
	}{
		"both":       {direct: true, want: "direct"},
		"gRPC alone": {want: "gRPC"},
		"gRPC alone, silent": {
			mute: true, config: Config{DialTimeout: 50 * time.Millisecond}, want: "gRPC",
		},
		"by config":           {direct: true, config: Config{GRPC: true}, want: "gRPC"},
		"both, TLS":           {direct: true, secure: true, want: "direct"},
		"gRPC alone, TLS":     {secure: true, want: "gRPC"},
		"by config, TLS":      {direct: true, secure: true, config: Config{GRPC: true}, want: "gRPC"},
		"a dialer of its own": {direct: true, config: Config{Dial: dialUnix}, want: "direct"},
	} {
		t.Run(name, func(t *testing.T) {
			asked := make(chan string)
			path := filepath.Join(t.TempDir(), "s")
			m := serveWays(t, path, c.direct, c.secure, asked)
			if !c.mute {
				go http.Serve(m.HTTP(), http.NotFoundHandler()) //nolint:errcheck,gosec // until m ends
			}
			c.config.Endpoints = []string{"unix:" + path}
			if c.secure {
				c.config.TLS = &tls.Config{InsecureSkipVerify: true}
			}
			client, err := New(c.config)
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			for range 2 { // the second time, the client remembers the protocol
				if by := <-asked; by != c.want {
					t.Errorf("asked by %s, want %s", by, c.want)
				}
			}
		})
	}
}

func dialUnix(ctx context.Context, endpoint string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "unix", endpoint[len("unix:"):])
}

// asks reports the protocol of each stream and ends the stream once the report has been read.
type asks struct {
	pb.UnimplementedStreamServiceServer
	by    string
	asked chan<- string
}

func (a asks) Open(g pb.StreamService_OpenServer) error {
	if err := g.Send(new(pb.ServerMessage)); err != nil {
		return err
	}
	select {
	case a.asked <- a.by:
	case <-g.Context().Done():
	}
	return nil
}

// serveWays serves gRPC, and optionally the other protocol, on a socket until the test ends.
func serveWays(t *testing.T, path string, also, secure bool, asked chan<- string) *listen.Mux {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	var conf *tls.Config
	if secure {
		files, err := listen.TLS{Auto: true}.SelfSigned(t.TempDir(), []string{"localhost"})
		if err == nil {
			conf, err = files.Server()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	m := listen.NewMux(listen.MuxOptions{Direct: also})
	g := grpc.NewServer(grpc.Creds(listen.Credentials(nil, nil)))
	pb.RegisterStreamServiceServer(g, asks{by: "gRPC", asked: asked})
	d := direct.NewServer(direct.Options{
		Credentials: listen.Credentials(nil, nil), Codec: wire.Codec(), Patience: time.Minute,
	})
	pb.RegisterStreamServiceServer(d, asks{by: "direct", asked: asked})
	ended := make(chan error, 3)
	go func() { ended <- m.Serve(l, conf) }()
	go func() { ended <- g.Serve(m.GRPC()) }()
	go func() { ended <- d.Serve(m.Direct()) }()
	t.Cleanup(func() {
		g.Stop()
		d.Stop()
		_ = m.Close()
		for range cap(ended) {
			<-ended
		}
		d.GracefulStop()
	})
	return m
}

// TestServerName checks that, as with gRPC, a certificate must match the endpoint's host unless the
// configuration specifies another name. The configuration is not modified.
func TestServerName(t *testing.T) {
	for _, c := range []struct{ network, address, set, want string }{
		{"tcp", "far.example:2379", "", "far.example"},
		{"tcp", "[::1]:2379", "", "::1"},
		{"tcp", "far.example:2379", "near.example", "near.example"},
		{"unix", "/run/a:1", "", "localhost"},
	} {
		given := &tls.Config{ServerName: c.set} //nolint:gosec // nothing is encrypted
		got := tlsFor(given, c.network, c.address)
		if got.ServerName != c.want || given.ServerName != c.set || given.NextProtos != nil {
			t.Errorf("%s %s: %q, want %q", c.network, c.address, got.ServerName, c.want)
		}
	}
}

// TestProxy checks that gRPC is used for endpoints that have a proxy in the environment, because
// gRPC supports proxies. The test runs in its own process, because the environment is read only
// once.
func TestProxy(t *testing.T) {
	const proxy, none = "HTTPS_PROXY=http://proxy.example:3128", "NO_PROXY=near.example"
	if os.Getenv("LEASEHOLD_TEST_PROXY") == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProxy$")
		cmd.Env = append(os.Environ(), "LEASEHOLD_TEST_PROXY=1", proxy, none)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	for target, want := range map[string]bool{
		"passthrough:///far.example:2379": true, "passthrough:///10.0.0.1:2379": true,
		"passthrough:///near.example:2379": false, "passthrough:///127.0.0.1:2379": false,
		"unix:/run/leasehold": false,
	} {
		d := &directConnection{endpoint: endpoint{target: target}, cfg: new(settings)}
		if got := d.proxied(); got != want {
			t.Errorf("%s: %t, want %t", target, got, want)
		}
		d.cfg.Dial = dialUnix
		if d.proxied() {
			t.Errorf("%s: a program that connects by itself needs no proxy", target)
		}
	}
}

// TestWayIsForgotten checks that after an hour the client again probes the protocol of an endpoint
// that needed gRPC.
func TestWayIsForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w ways
		e := &endpoint{text: "there"}
		for range maxUnanswered {
			w.learn(e, func(w *way) { w.late++ })
		}
		time.Sleep(gRPCTime - time.Nanosecond)
		if !w.needsGRPC(e) {
			t.Error("it was forgotten early")
		}
		time.Sleep(time.Nanosecond)
		if w.needsGRPC(e) {
			t.Error("it is remembered for ever")
		}
		w.learn(e, func(w *way) { w.late++ })
		if w.needsGRPC(e) {
			t.Error("one try was enough to need gRPC again")
		}
	})
}
