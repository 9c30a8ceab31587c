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

// The first certificate of each file counts, a file that is replaced counts at once, and one that
// cannot be read is reported as expired long ago.
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
	// The bundle has the certificate that expires first at its end, behind what is none.
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
		// Certificates of a test are made within some seconds of each other.
		if d := got[use] - want; d < -60 || d > 60 {
			t.Errorf("%s: %v, want about %v", use, got[use], want)
		}
	}
	if len(got) != 3 {
		t.Errorf("%v", got)
	}
}
