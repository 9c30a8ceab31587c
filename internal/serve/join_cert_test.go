package serve

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/internal/listen"
	servers "leasehold.dev/test/process"
)

// authority signs certificates for this machine.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{t: t, dir: t.TempDir(), cert: &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, IsCA: true,
		NotAfter: time.Now().Add(time.Hour), BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	}}
	a.sign("ca")
	return a
}

// file is where a certificate, or a key, of a name is.
func (a *authority) file(name, kind string) string { return filepath.Join(a.dir, name+"."+kind) }

// sign writes a certificate of a common name, and its key.
func (a *authority) sign(name string) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	c := a.cert
	if a.key == nil {
		a.key = key
	} else {
		c = &x509.Certificate{
			SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name},
			NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, c, a.cert, key.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	for kind, b := range map[string]*pem.Block{
		"cert": {Type: "CERTIFICATE", Bytes: der}, "key": {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(a.file(name, kind), pem.EncodeToMemory(b), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
}

// TestJoinByCertificate: root's certificate lets a member join a cluster with users, and the
// certificate of another user does not.
func TestJoinByCertificate(t *testing.T) {
	if testing.Short() {
		t.Skip("runs a cluster")
	}
	ca := newAuthority(t)
	for _, name := range []string{"server", "root", "alice"} {
		ca.sign(name)
	}
	encrypted := []string{
		"--cert-file", ca.file("server", "cert"), "--key-file", ca.file("server", "key"),
		"--trusted-ca-file", ca.file("ca", "cert"), "--client-cert-auth", "--bcrypt-cost=4",
	}
	addr := servers.MustFreeAddr()
	run(t, "member", append(encrypted, "--data-dir", t.TempDir(),
		"--listen-client-urls", "https://"+addr,
		"--listen-peer-urls", "http://"+servers.MustFreeAddr())...).until("ready to serve")
	conf, err := listen.TLS{
		CertFile: ca.file("root", "cert"), KeyFile: ca.file("root", "key"),
		TrustedCAFile: ca.file("ca", "cert"),
	}.Client()
	if err != nil {
		t.Fatal(err)
	}
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{"https://" + addr}, TLS: conf})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, user := range []string{"root", "alice"} {
		if _, err := c.UserAdd(t.Context(), user, user+" has this password"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.UserGrantRole(t.Context(), "root", "root"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.AuthEnable(t.Context()); err != nil {
		t.Fatal(err)
	}
	as := func(user string) *program {
		j := newJoining(t, "https://"+addr)
		j.args[5] = "https://" + servers.MustFreeAddr() // the client URL
		return j.start(append(encrypted, "--client-cert-file", ca.file(user, "cert"),
			"--client-key-file", ca.file(user, "key"))...)
	}
	p := as("alice")
	p.until("to add or promote a member needs the role root")
	if code := p.exit(); code == 0 {
		t.Error("alice's certificate: exit code 0")
	}
	as("root").until("became a voter")
}
