package client

import (
	"context"
	"crypto/tls"
	"net"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/test/bufconn"

	"leasehold.dev/test/certs"
)

// TestRootCAFile checks that each connection trusts the current certificates in RootCAFile.
func TestRootCAFile(t *testing.T) {
	secure := &tls.Config{MinVersion: tls.VersionTLS12}
	file := filepath.Join(t.TempDir(), "ca.pem")
	if _, err := New(Config{Endpoints: []string{"h:1"}, RootCAFile: file}); err == nil {
		t.Error("RootCAFile without TLS is accepted")
	}
	c := &settings{Config: Config{TLS: secure, RootCAFile: file}}
	if _, err := c.tlsFor(endpoint{tls: secure}); err == nil {
		t.Error("a missing file is accepted")
	}
	for range 2 {
		a := certs.New(t)
		text, err := os.ReadFile(a.Path("ca.pem"))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := c.tlsFor(endpoint{tls: secure})
		if err != nil || !got.RootCAs.Equal(a.Client().RootCAs) || secure.RootCAs != nil {
			t.Errorf("the authorities are not those of the file: %v", err)
		}
	}
	served := certs.New(t)
	conn, err := newConn(endpoint{text: "h:1", target: "passthrough:///h:1", tls: secure}, c,
		grpc.WithAuthority("server.example"), grpc.WithContextDialer(serveTLS(t, served)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	until := func(want connectivity.State) {
		t.Helper()
		for at := conn.GetState(); at != want; at = conn.GetState() {
			if conn.Connect(); !conn.WaitForStateChange(t.Context(), at) {
				t.Fatal(at)
			}
		}
	}
	until(connectivity.TransientFailure)
	text, err := os.ReadFile(served.Path("ca.pem"))
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	conn.ResetConnectBackoff()
	until(connectivity.Ready)
	if got, err := c.tlsFor(endpoint{}); got != nil || err != nil {
		t.Errorf("TLS for an endpoint without: %v, %v", got, err)
	}
	if err := os.WriteFile(file, []byte("none"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := c.tlsFor(endpoint{tls: secure}); err == nil {
		t.Error("a file without a certificate is accepted")
	}
}

// serveTLS runs a gRPC server with a certificate issued by an authority. It returns a dialer for
// that server.
func serveTLS(t *testing.T, a *certs.Authority) func(context.Context, string) (net.Conn, error) {
	cert := a.Issue("server")
	s := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(&cert)))
	t.Cleanup(s.Stop)
	l := bufconn.Listen(1 << 16)
	go func() { _ = s.Serve(l) }()
	return func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }
}
