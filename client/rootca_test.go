package client

import (
	"crypto/tls"
	"os"
	"path/filepath"
	"testing"

	"leasehold.dev/test/certs"
)

// TestRootCAFile: each connection trusts the certificates that RootCAFile has at that moment.
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
