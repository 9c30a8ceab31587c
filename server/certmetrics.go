package server

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// certMetrics tell when certificates expire. Their files are read when they are scraped, as they
// are at each handshake, so a file that was replaced counts at once.
type certMetrics struct{ files []certFile }

// certFile is a file of certificates and what it is for.
type certFile struct{ path, use string }

var certExpiry = prometheus.NewDesc("leasehold_certificate_expiry_timestamp_seconds",
	"Unix time at which the first certificate in a file expires; 0 if the file cannot be read. "+
		"The label use is client or peer, followed by -ca for trusted authorities or -dial for "+
		"the certificate that this member presents.", []string{"file", "use"}, nil)

func newCertMetrics(c *Config) *certMetrics {
	m := new(certMetrics)
	for _, x := range []struct {
		use string
		tls *TLS
	}{{"client", &c.ClientTLS}, {"peer", &c.PeerTLS}} {
		for _, f := range []certFile{
			{x.tls.CertFile, x.use},
			{x.tls.ClientCertFile, x.use + "-dial"},
			{x.tls.TrustedCAFile, x.use + "-ca"},
		} {
			if f.path != "" {
				m.files = append(m.files, f)
			}
		}
	}
	return m
}

// Describe implements prometheus.Collector.
func (m *certMetrics) Describe(out chan<- *prometheus.Desc) { out <- certExpiry }

// Collect implements prometheus.Collector.
func (m *certMetrics) Collect(out chan<- prometheus.Metric) {
	for _, f := range m.files {
		at := 0.0
		if t, ok := firstExpiry(f.path); ok {
			at = float64(t.Unix())
		}
		out <- prometheus.MustNewConstMetric(certExpiry, prometheus.GaugeValue, at, f.path, f.use)
	}
}

// firstExpiry returns when the first certificate of a PEM file expires.
func firstExpiry(path string) (first time.Time, ok bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return time.Time{}, false
	}
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return first, ok
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return time.Time{}, false
		}
		if !ok || cert.NotAfter.Before(first) {
			first, ok = cert.NotAfter, true
		}
	}
}
