// Package certs creates certificates for tests.
package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates and stores them as files in its directory, together with its own
// certificate ca.pem and its key ca.key. Its methods end the test on failure. Only one goroutine at
// a time may call them.
type Authority struct {
	// Dir is the directory that contains the files.
	Dir  string
	Cert *x509.Certificate
	Key  *ecdsa.PrivateKey

	t      testing.TB
	serial int64
}

// New creates an authority in a directory that is deleted when the test ends. change can modify the
// template of its certificate.
func New(t testing.TB, change ...func(*x509.Certificate)) *Authority {
	t.Helper()
	a := &Authority{Dir: t.TempDir(), t: t}
	own := func(c *x509.Certificate) {
		c.IsCA, c.BasicConstraintsValid = true, true
		c.KeyUsage, c.ExtKeyUsage = x509.KeyUsageCertSign|x509.KeyUsageCRLSign, nil
	}
	pair := a.Issue("ca", append([]func(*x509.Certificate){own}, change...)...)
	a.Key = pair.PrivateKey.(*ecdsa.PrivateKey)
	a.Cert = pair.Leaf
	return a
}

// Issue writes NAME.pem and NAME.key, replacing existing files, and returns the pair with its Leaf
// set. The certificate is valid for clients and servers at loopback addresses and for the names
// localhost and NAME.example. Its common name is NAME. It is valid for two hours, starting an hour
// ago. change can modify the template.
func (a *Authority) Issue(name string, change ...func(*x509.Certificate)) tls.Certificate {
	a.t.Helper()
	a.serial++
	c := &x509.Certificate{
		SerialNumber: big.NewInt(a.serial), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		DNSNames:    []string{"localhost", name + ".example"},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	for _, f := range change {
		f(c)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	a.must(err)
	parent, sign := a.Cert, a.Key
	if parent == nil {
		parent, sign = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), sign)
	a.must(err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	a.must(err)
	leaf, err := x509.ParseCertificate(der)
	a.must(err)
	a.Write(name+".pem", "CERTIFICATE", der)
	a.Write(name+".key", "PRIVATE KEY", private)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// Write writes a PEM block to a file in the directory and returns its path.
func (a *Authority) Write(file, kind string, der []byte) (path string) {
	a.t.Helper()
	b := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	a.must(os.WriteFile(a.Path(file), b, 0o600))
	return a.Path(file)
}

// Revoke writes a revocation list to a file in the directory and returns its path.
func (a *Authority) Revoke(file string, revoked ...tls.Certificate) (path string) {
	a.t.Helper()
	list := &x509.RevocationList{
		Number: big.NewInt(1), ThisUpdate: time.Now(), NextUpdate: time.Now().Add(time.Hour),
	}
	for _, c := range revoked {
		list.RevokedCertificateEntries = append(list.RevokedCertificateEntries,
			x509.RevocationListEntry{SerialNumber: c.Leaf.SerialNumber, RevocationTime: time.Now()})
	}
	der, err := x509.CreateRevocationList(rand.Reader, list, a.Cert, a.Key)
	a.must(err)
	return a.Write(file, "X509 CRL", der)
}

// Path returns the path of a file in the directory.
func (a *Authority) Path(file string) string { return filepath.Join(a.Dir, file) }

// Client returns the TLS configuration of a client that trusts the authority and presents the given
// certificates.
func (a *Authority) Client(certs ...tls.Certificate) *tls.Config {
	pool := x509.NewCertPool()
	pool.AddCert(a.Cert)
	return &tls.Config{RootCAs: pool, Certificates: certs}
}

func (a *Authority) must(err error) {
	a.t.Helper()
	if err != nil {
		a.t.Fatal(err)
	}
}
