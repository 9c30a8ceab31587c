package recovery

import (
	"crypto/tls"
	"net"
	"testing"
	"time"

	"leasehold.dev/test/certs"
)

// TestShownAt checks that recover sees the certificate of a listener that then aborts the handshake,
// because it requires a client certificate.
func TestShownAt(t *testing.T) {
	pair := certs.New(t).Issue("server")
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		aborted := make(chan error, 1)
		go func() {
			conn, err := l.Accept()
			if err == nil {
				defer conn.Close()
				err = tls.Server(conn, &tls.Config{
					Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAnyClientCert,
					MinVersion: version, MaxVersion: version,
				}).Handshake()
			}
			aborted <- err
		}()
		shown := shownAt(l.Addr().String(), time.Minute)
		if len(shown) != 1 || !shown[0].Equal(pair.Leaf) {
			t.Errorf("%s: got %d certificates", tls.VersionName(version), len(shown))
		}
		if err := <-aborted; err == nil {
			t.Errorf("%s: the listener does not abort the handshake", tls.VersionName(version))
		}
	}
}
