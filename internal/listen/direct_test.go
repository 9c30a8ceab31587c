package listen

import (
	"crypto/tls"
	"errors"
	"testing"

	"google.golang.org/grpc/credentials"

	"leasehold.dev/internal/direct"
	"leasehold.dev/test/certs"
)

// TestDirectOverTLS checks that a TLS client that offers the protocol without HTTP/2 gets it, with
// its certificate. If the server does not offer the protocol, the client gets its next choice.
func TestDirectOverTLS(t *testing.T) {
	a := certs.New(t)
	opts := serverOf(a)
	opts.TrustedCAFile = a.Path("ca.pem")
	conf, err := opts.Server()
	if err != nil {
		t.Fatal(err)
	}
	client := a.Client(a.Issue("alice"))
	client.NextProtos, client.ServerName = []string{"h2", direct.Protocol}, "localhost"
	for _, served := range []bool{true, false} {
		m, l := NewMux(MuxOptions{Direct: served}), newPipes()
		ended := make(chan error, 1)
		go func() { ended <- m.Serve(l, conf) }()
		near := l.dial()
		c := tls.Client(near, client)
		done := make(chan error, 1)
		go func() { done <- c.Handshake() }()
		from, want := m.GRPC(), "h2"
		if served {
			from, want = m.Direct(), direct.Protocol
		}
		raw, err := from.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_, info, err := Credentials(nil, nil).ServerHandshake(raw)
		if err := errors.Join(err, <-done); err != nil {
			t.Fatal(err)
		}
		state := info.(credentials.TLSInfo).State
		if c.ConnectionState().NegotiatedProtocol != want ||
			state.PeerCertificates[0].Subject.CommonName != "alice" {
			t.Errorf("served: %t: %q for %v", served, state.NegotiatedProtocol, state.PeerCertificates)
		}
		_ = near.Close() // otherwise the other end blocks until its close message is read
		_ = raw.Close()
		if err := errors.Join(m.Close(), <-ended); err != nil {
			t.Error(err)
		}
	}
}
