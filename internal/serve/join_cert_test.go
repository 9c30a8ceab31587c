package serve

import (
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/internal/listen"
	"leasehold.dev/test/certs"
	servers "leasehold.dev/test/process"
	"leasehold.dev/test/tier"
)

// TestJoinByCertificate checks that a member can join a cluster with users if it has root's
// certificate, and cannot if it has another user's.
func TestJoinByCertificate(t *testing.T) {
	tier.Campaign(t)
	ca := certs.New(t)
	for _, name := range []string{"server", "root", "alice"} {
		ca.Issue(name)
	}
	encrypted := []string{
		"--cert-file", ca.Path("server.pem"), "--key-file", ca.Path("server.key"),
		"--trusted-ca-file", ca.Path("ca.pem"), "--client-cert-auth", "--bcrypt-cost=4",
	}
	addr := servers.MustFreeAddr()
	run(t, "member", append(encrypted, "--data-dir", t.TempDir(),
		"--listen-client-urls", "https://"+addr,
		"--listen-peer-urls", "http://"+servers.MustFreeAddr())...).until("ready to serve")
	conf, err := listen.TLS{
		CertFile: ca.Path("root.pem"), KeyFile: ca.Path("root.key"),
		TrustedCAFile: ca.Path("ca.pem"),
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
		return j.start(append(encrypted, "--client-cert-file", ca.Path(user+".pem"),
			"--client-key-file", ca.Path(user+".key"))...)
	}
	p := as("alice")
	p.until("adding or promoting a member requires the role root")
	if code := p.exit(); code == 0 {
		t.Error("alice's certificate: exit code 0")
	}
	as("root").until("became a voter")
}
