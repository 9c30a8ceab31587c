package metrics

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Certificate is a file that contains certificates, together with its label.
type Certificate struct{ Path, Use string }

// certificates collects the expiry times of certificates. Each scrape reads the files, just as each
// handshake does, so a replaced file takes effect immediately.
type certificates struct{ files []Certificate }

var certExpiry = prometheus.NewDesc("leasehold_certificate_expiry_timestamp_seconds",
	"Unix time at which the first certificate in a file expires; 0 if the file cannot be read. "+
		"The label use is client or peer, followed by -ca for trusted authorities or -dial for "+
		"the certificate that this member presents.", []string{"file", "use"}, nil)

// Describe implements prometheus.Collector.
func (m certificates) Describe(out chan<- *prometheus.Desc) { out <- certExpiry }

// Collect implements prometheus.Collector.
func (m certificates) Collect(out chan<- prometheus.Metric) {
	for _, f := range m.files {
		at := 0.0
		if t, ok := firstExpiry(f.Path); ok {
			at = float64(t.Unix())
		}
		out <- prometheus.MustNewConstMetric(certExpiry, prometheus.GaugeValue, at, f.Path, f.Use)
	}
}

// firstExpiry returns the earliest expiry time in a PEM file.
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
