package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// certificate is the self-signed certificate that members present and clients trust. Its files are
// server.pem and server.key.
type certificate struct {
	dir string
	*x509.Certificate
}

func (c *certificate) file(name string) string { return filepath.Join(c.dir, name) }

func newCertificate(dir string) (*certificate, error) {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	c := &certificate{dir: dir}
	if c.Certificate, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	for name, block := range map[string]*pem.Block{
		"server.pem": {Type: "CERTIFICATE", Bytes: der},
		"server.key": {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(c.file(name), pem.EncodeToMemory(block), 0o600); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// client returns the TLS configuration of the runner's own client.
func (c *certificate) client() *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(c.Certificate)
	return &tls.Config{RootCAs: pool}
}
