package listen

import (
	"crypto/tls"
	"os"
	"strings"
	"testing"

	"leasehold.dev/test/certs"
)

// TestRevokedByAnyList checks that every revocation list in a file is used, and that a file
// containing anything else is rejected.
func TestRevokedByAnyList(t *testing.T) {
	a := certs.New(t)
	options := serverOf(a)
	options.TrustedCAFile = a.Path("ca.pem")
	issued := map[string]tls.Certificate{}
	var lists strings.Builder
	for _, name := range []string{"alice", "bob"} {
		issued[name] = a.Issue(name)
		data, err := os.ReadFile(a.Revoke("crl.pem", issued[name]))
		if err != nil {
			t.Fatal(err)
		}
		lists.Write(data)
	}
	issued["carol"] = a.Issue("carol")
	options.CRLFile = a.Path("lists.pem")
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
		client := a.Client()
		client.Certificates = []tls.Certificate{issued[name]}
		if _, err := handshake(t, conf, client); (err == nil) != ok {
			t.Errorf("%s: %v, want ok %t", name, err, ok)
		}
	}
	write(lists.String() + "-----BEGIN X509 CRL-----\nMII")
	if _, err := options.Server(); err == nil || !strings.Contains(err.Error(), "data after list 2") {
		t.Errorf("half a list: %v", err)
	}
}
