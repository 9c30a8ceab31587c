package api

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
)

type someAddr struct{ network, text string }

func (a someAddr) Network() string { return a.network }
func (a someAddr) String() string  { return a.text }

// TestCaller checks that a caller is identified by its certificate, or by its address if it has
// none. This also works through the gateway, where a caller cannot impersonate another.
func TestCaller(t *testing.T) {
	from := func(addr net.Addr, name string) context.Context {
		p := &peer.Peer{Addr: addr}
		if name != "" {
			cert := &x509.Certificate{Subject: pkix.Name{CommonName: name}}
			if strings.HasPrefix(name, "dns:") {
				cert = &x509.Certificate{DNSNames: []string{name[4:]}}
			}
			p.AuthInfo = credentials.TLSInfo{
				State: tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}},
			}
		}
		return peer.NewContext(t.Context(), p)
	}
	tcp, gateway := someAddr{"tcp", "10.0.0.7:99"}, someAddr{"bufconn", "bufconn"}
	forwarded := metadata.NewIncomingContext(from(gateway, ""),
		metadata.Pairs("x-forwarded-for", "6.6.6.6, 10.0.0.8"))
	for _, c := range []struct {
		ctx  context.Context
		want string
	}{
		{t.Context(), ""},
		{from(tcp, ""), "10.0.0.7:99"},
		{from(tcp, "ann"), "ann"},
		{from(tcp, "dns:web"), "web"},
		{from(someAddr{"unix", "@"}, ""), unixSocket},
		{from(gateway, ""), unixSocket},
		{forwarded, "10.0.0.8"},
		{from(tcp, strings.Repeat("ü", 300)), strings.Repeat("ü", 128)},
	} {
		if got := Caller(c.ctx); got != c.want {
			t.Errorf("Caller = %q, want %q", got, c.want)
		}
	}
}
