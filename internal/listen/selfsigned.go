package listen

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// SelfSigned returns t with a self-signed certificate if t.Auto is set and t names no certificate
// files. The certificate is valid for localhost and for each of the given hosts, which may include
// ports. It is kept in dir, so that clients that have pinned it still accept it after a restart.
// When it has expired, a new one is created.
func (t TLS) SelfSigned(dir string, hosts []string) (TLS, error) {
	if !t.Auto || t.CertFile != "" || t.KeyFile != "" {
		return t, nil
	}
	t.CertFile = filepath.Join(dir, "cert.pem")
	t.KeyFile = filepath.Join(dir, "key.pem")
	t.selfSigned = true
	usable, err := stillValid(t.CertFile)
	if err != nil || usable {
		return t, err
	}
	if err := makeCert(t, hosts); err != nil {
		return t, fmt.Errorf("%w: self-signed certificate: %w", errTLS, err)
	}
	return t, nil
}

// stillValid reports whether file contains a certificate that has not expired.
func stillValid(file string) (bool, error) {
	data, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("%w: self-signed certificate: %w", errTLS, err)
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return false, nil
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	return err == nil && time.Now().Before(cert.NotAfter), nil
}

func makeCert(t TLS, hosts []string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return err
	}
	now := time.Now()
	cert := x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{Organization: []string{"leasehold"}},
		NotBefore:    now.Add(-time.Hour), // the clocks of clients might be behind
		NotAfter:     now.AddDate(max(t.SelfSignedYears, 1), 0, 0),
		KeyUsage:     x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{
			x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth,
		},
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	for _, h := range slices.Concat(hosts, []string{"localhost", "127.0.0.1", "::1"}) {
		if host, _, err := net.SplitHostPort(h); err == nil {
			h = host
		}
		if h == "" || slices.Contains(cert.DNSNames, h) {
			continue
		}
		if ip := net.ParseIP(h); ip != nil {
			cert.IPAddresses = append(cert.IPAddresses, ip)
		} else {
			cert.DNSNames = append(cert.DNSNames, h)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, &cert, &cert, &key.PublicKey, key)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(t.CertFile), 0o700); err != nil {
		return err
	}
	// The key is written first. If the process crashes before the certificate is written, the key
	// and the certificate are created again.
	if err := writePEM(t.KeyFile, "EC PRIVATE KEY", keyDER); err != nil {
		return err
	}
	return writePEM(t.CertFile, "CERTIFICATE", der)
}

// writePEM replaces file. The new file is readable only by its owner.
func writePEM(file, kind string, der []byte) error {
	temp := file + ".tmp"
	data := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	if err := os.WriteFile(temp, data, 0o600); err != nil {
		return err
	}
	return os.Rename(temp, file)
}
