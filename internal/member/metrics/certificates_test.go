package metrics

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"leasehold.dev/test/certs"
	"leasehold.dev/test/virtual"
)

// TestCertificateExpiry checks that the first certificate of each file is reported, that a replaced
// file takes effect immediately, and that an unreadable file counts as long expired.
func TestCertificateExpiry(t *testing.T) { virtual.Test(t, testCertificateExpiry) }

func testCertificateExpiry(t *testing.T) {
	authority := certs.New(t)
	alice := authority.Issue("alice")
	cert, ca := authority.Path("alice.pem"), authority.Path("ca.pem")
	m := certificates{[]Certificate{
		{cert, "client"}, {ca, "client-ca"}, {filepath.Join(t.TempDir(), "missing"), "peer-dial"},
	}}
	leaf, err := x509.ParseCertificate(alice.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	own, err := os.ReadFile(ca)
	if err != nil {
		t.Fatal(err)
	}
	// In the bundle, the certificate that expires first comes last, after a block that is not a
	// certificate.
	block := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: leaf.Raw})
	bundle := append(append(own, "-----BEGIN X-----\n-----END X-----\n"...), block...)
	if err := os.WriteFile(ca, bundle, 0o600); err != nil {
		t.Fatal(err)
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(m)
	families, err := reg.Gather()
	if err != nil || len(families) != 1 {
		t.Fatal(families, err)
	}
	got := make(map[string]float64)
	for _, x := range families[0].Metric {
		got[x.Label[1].GetValue()] = x.Gauge.GetValue()
	}
	at := float64(leaf.NotAfter.Unix())
	for use, want := range map[string]float64{
		"client": at, "client-ca": at, "peer-dial": 0,
	} {
		// Test certificates are created within seconds of each other.
		if d := got[use] - want; d < -60 || d > 60 {
			t.Errorf("%s: %v, want about %v", use, got[use], want)
		}
	}
	if len(got) != 3 {
		t.Errorf("%v", got)
	}
}
