package server

import (
	"crypto/tls"
	"net/url"
	"path/filepath"
	"slices"
	"testing"

	"leasehold.dev/test/virtual"
)

// TestRevokedOnEveryPort checks that a certificate revoked while the member is running is rejected
// on every port. In etcd, one of two listeners ignored the revocation list (CVE-2026-59818).
func TestRevokedOnEveryPort(t *testing.T) { virtual.Test(t, testRevokedOnEveryPort) }

func testRevokedOnEveryPort(t *testing.T) {
	certs := newCertificates(t, "alice")
	dir := shortDir(t)
	c := testConfig(dir)
	crl := certs.Revoke("crl.pem")
	socket := func(name string) []url.URL {
		return []url.URL{{Scheme: "unixs", Path: filepath.Join(dir, name)}}
	}
	c.URLs.ListenClient = append(c.URLs.ListenClient, socket("c")...)
	c.URLs.ListenClientHTTP, c.URLs.ListenMetrics = socket("h"), socket("m")
	c.URLs.ListenPeer = socket("q")
	c.URLs.AdvertisePeer = c.URLs.ListenPeer
	c.ClientTLS = TLS{
		CertFile: certs.cert, KeyFile: certs.key, TrustedCAFile: certs.ca, CRLFile: crl,
	}
	c.PeerTLS = c.ClientTLS
	r := run(t, c)
	shakes := func(u url.URL) error {
		conf := certs.config("alice")
		// in TLS 1.2, the handshake returns the rejection to the client
		conf.MaxVersion = tls.VersionTLS12
		conn, err := virtual.Dial(t.Context(), "unix", u.Path)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return tls.Client(conn, conf).HandshakeContext(t.Context())
	}
	urls := r.cfg.URLs
	all := slices.Concat(urls.ListenClient[1:], urls.ListenClientHTTP, urls.ListenMetrics,
		urls.ListenPeer)
	for _, u := range all {
		if err := shakes(u); err != nil {
			t.Errorf("%s: %v", u.Path, err)
		}
	}
	certs.Revoke("crl.pem", certs.clients["alice"])
	for _, u := range all {
		if shakes(u) == nil {
			t.Errorf("%s lets a revoked certificate in", u.Path)
		}
	}
}
