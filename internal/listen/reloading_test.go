package listen

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"leasehold.dev/test/certs"
)

// TestReloading checks that a client trusts the CA that is in the file at the time of the
// handshake, and still verifies the server's name.
func TestReloading(t *testing.T) {
	a, file := certs.New(t), filepath.Join(t.TempDir(), "ca.pem")
	server := a.Issue("server")
	client := Reloading(&tls.Config{MinVersion: tls.VersionTLS12}, file).Clone()
	connect := func(authority, name string) error {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := tls.Listen("unix", filepath.Join(t.TempDir(), "s"), &tls.Config{
			MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"},
			Certificates: []tls.Certificate{server},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			if c, err := l.Accept(); err == nil {
				_, _ = io.Copy(io.Discard, c)
				_ = c.Close()
			}
		}()
		raw, err := net.Dial("unix", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer raw.Close()
		_, _, err = client.ClientHandshake(t.Context(), authority, raw)
		return err
	}
	var unknown *tls.CertificateVerificationError
	if err := connect("server.example", certs.New(t).Path("ca.pem")); !errors.As(err, &unknown) {
		t.Errorf("with another authority: %v", err)
	}
	if err := connect("server.example", a.Path("ca.pem")); err != nil {
		t.Errorf("after the file was replaced: %v", err)
	}
	if err := connect("other.example", a.Path("ca.pem")); !errors.As(err, &unknown) {
		t.Errorf("with another name: %v", err)
	}
}
