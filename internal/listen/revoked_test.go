package listen

import (
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"os"
	"strings"
	"testing"
	"time"
)

// revoke writes crl.pem with the certificate in it.
func (a *authority) revoke(c tls.Certificate) string {
	leaf, err := x509.ParseCertificate(c.Certificate[0])
	if err != nil {
		a.t.Fatal(err)
	}
	der, err := x509.CreateRevocationList(rand.Reader, &x509.RevocationList{
		Number: big.NewInt(1), ThisUpdate: time.Now(), NextUpdate: time.Now().Add(time.Hour),
		RevokedCertificateEntries: []x509.RevocationListEntry{
			{SerialNumber: leaf.SerialNumber, RevocationTime: time.Now()},
		},
	}, a.cert, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return a.write("crl.pem", "X509 CRL", der)
}

// Goal: of several lists in a file each counts, and a file that is not lists to its end is refused.
func TestRevokedByAnyList(t *testing.T) {
	a := newAuthority(t)
	options := a.server()
	options.TrustedCAFile = a.path("ca.pem")
	certs := map[string]tls.Certificate{}
	var lists strings.Builder
	for _, name := range []string{"alice", "bob"} {
		certs[name] = a.issue(name, name)
		data, err := os.ReadFile(a.revoke(certs[name]))
		if err != nil {
			t.Fatal(err)
		}
		lists.Write(data)
	}
	certs["carol"] = a.issue("carol", "carol")
	options.CRLFile = a.path("lists.pem")
	write := func(text string) {
		if err := os.WriteFile(options.CRLFile, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(lists.String())
	conf, err := options.Server()
	if err != nil {
		t.Fatal(err)
	}
	for name, ok := range map[string]bool{"alice": false, "bob": false, "carol": true} {
		client := a.client()
		client.Certificates = []tls.Certificate{certs[name]}
		if _, err := handshake(t, conf, client); (err == nil) != ok {
			t.Errorf("%s: %v, want ok %t", name, err, ok)
		}
	}
	write(lists.String() + "-----BEGIN X509 CRL-----\nMII")
	if _, err := options.Server(); err == nil || !strings.Contains(err.Error(), "follows list 2") {
		t.Errorf("half a list: %v", err)
	}
}
