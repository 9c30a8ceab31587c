package e2e

import (
	"crypto/tls"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/test/certs"
	"leasehold.dev/test/harness"
	"leasehold.dev/test/tier"
)

// guarded is a member with access control. User alice has all permissions on keys and names below
// "app/".
type guarded struct {
	*member
	url  string
	env  []string // environment of commands
	root *clientv3.Client
}

// guard enables access control at a member. If security is set, the member uses TLS, and env
// contains what commands need to connect.
func guard(t *testing.T, m *member, security *tls.Config, env ...string) *guarded {
	t.Helper()
	g := &guarded{member: m, url: m.url, env: env}
	if security != nil {
		g.url = strings.Replace(m.url, "http://", "https://", 1)
	}
	cfg := clientv3.Config{Endpoints: []string{g.url}, TLS: security, DialTimeout: patience}
	open := connectWith(t, cfg)
	ctx := t.Context()
	all := clientv3.PermissionType(clientv3.PermReadWrite)
	for _, err := range []error{
		failed(open.UserAdd(ctx, "root", "root-password")),
		failed(open.UserGrantRole(ctx, "root", "root")),
		failed(open.UserAdd(ctx, "alice", "alice-password")), failed(open.RoleAdd(ctx, "app")),
		failed(open.RoleGrantPermission(ctx, "app", "app/", "app0", all)),
		failed(open.UserGrantRole(ctx, "alice", "app")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := g.run("role", "grant-names", "app", "hold", "app/", "--prefix"); err != nil {
		t.Fatal(err)
	}
	if _, err := open.AuthEnable(ctx); err != nil {
		t.Fatal(err)
	}
	cfg.Username, cfg.Password = "root", "root-password"
	g.root = connectWith(t, cfg)
	return g
}

func failed(_ any, err error) error { return err }

func connectWith(t *testing.T, cfg clientv3.Config) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// run runs the binary as a client command.
func (g *guarded) run(args ...string) (string, error) {
	out, err := g.command(args...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%v: %w: %s", args, err, out)
	}
	return string(out), err
}

func (g *guarded) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(g.t.Context(), server.Path(g.t), args...)
	cmd.Env = append(harness.Environ("LEASEHOLD_ENDPOINTS="+g.url), g.env...)
	return cmd
}

// login atomically writes one of alice's tokens to a file.
func (g *guarded) login(file, password string) {
	g.t.Helper()
	r, err := g.root.Authenticate(g.t.Context(), "alice", password)
	if err == nil {
		err = os.WriteFile(file+".new", []byte(r.Token+"\n"), 0o600)
	}
	if err == nil {
		err = os.Rename(file+".new", file)
	}
	if err != nil {
		g.t.Fatal(err)
	}
}

// works checks all commands that hold leases.
func (g *guarded) works(env ...string) {
	g.t.Helper()
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"run", "--lock", "app/l", "--", "echo", "locked"}, "locked"},
		{[]string{"run", "--elect", "app/e", "--", "echo", "elected"}, "elected"},
		{[]string{"queue", "push", "app/q", "an item"}, ""},
		{[]string{"queue", "claim", "app/q"}, "an item"},
		{[]string{"pool", "create", "app/p", "a"}, ""},
		{[]string{"pool", "acquire", "app/p", "--", "echo", "on loan"}, "on loan"},
		{[]string{"group", "register", "app/g", "m", "--", "echo", "a member"}, "a member"},
	} {
		cmd := g.command(tt.args...)
		cmd.Env = append(cmd.Env, env...)
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), tt.want) {
			g.t.Errorf("%v with %v: %q, %v", tt.args, env, out, err)
		}
	}
}

// TestWorkWithCertificate checks that commands that hold leases can log in with a certificate, and
// with a token from a file.
func TestWorkWithCertificate(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	a := certs.New(t)
	a.Issue("member")
	a.Issue("alice")
	nobody := a.Issue("nobody")
	m := newMember(t, "--cert-file", a.Path("member.pem"), "--key-file", a.Path("member.key"),
		"--trusted-ca-file", a.Path("ca.pem"), "--client-cert-auth", "--bcrypt-cost=4")
	for i, arg := range m.args {
		if arg == m.url {
			m.args[i] = strings.Replace(m.url, "http://", "https://", 1)
		}
	}
	m.launch()
	with := func(name string) []string {
		return []string{
			"LEASEHOLD_CACERT=" + a.Path("ca.pem"), "LEASEHOLD_CERT=" + a.Path(name+".pem"),
			"LEASEHOLD_KEY=" + a.Path(name+".key"),
		}
	}
	g := guard(t, m, a.Client(nobody), with("nobody")...)
	g.works(with("alice")...)
	file := filepath.Join(t.TempDir(), "token")
	g.login(file, "alice-password")
	g.works("LEASEHOLD_TOKEN_FILE=" + file)
	never := []string{"run", "--command-timeout", "1s", "--lock", "app/l", "--", "echo", "never"}
	if out, err := g.run(never...); err == nil {
		t.Errorf("nobody: %q", out)
	}
}

// TestTokenFileIsReadAgain checks that a running command whose token expires continues with the
// current token in its file. Changing alice's password immediately revokes her tokens and ends her
// streams. After a new token is written to the file, the lock's lease is still renewed.
func TestTokenFileIsReadAgain(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	g := guard(t, startMember(t, "--bcrypt-cost=4"), nil)
	dir := t.TempDir()
	file, old := filepath.Join(dir, "token"), filepath.Join(dir, "old")
	g.login(file, "alice-password")
	g.login(old, "alice-password")
	g.works("LEASEHOLD_TOKEN_FILE=" + file)

	held := g.command("run", "--lock", "app/held", "--ttl", "30s", "--token-file", file,
		"--", "sh", "-c", "echo held; cat")
	var said strings.Builder
	held.Stderr = &said
	in, err := held.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := held.StdoutPipe()
	if err == nil {
		err = held.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 5)); err != nil {
		t.Fatal(err, said.String())
	}
	ctx := t.Context()
	if _, err := g.root.UserChangePassword(ctx, "alice", "another-password"); err != nil {
		t.Fatal(err)
	}
	if out, err := g.run("get", "app/a", "--token-file", old); err == nil {
		t.Errorf("the old token is taken: %s", out)
	}
	g.login(file, "another-password")
	g.renewed("app/held/")
	_ = in.Close()
	if err := held.Wait(); err != nil {
		t.Errorf("%v: %s", err, said.String())
	}
}

// renewed waits until the lease of the only key with a prefix is renewed.
func (g *guarded) renewed(prefix string) {
	g.t.Helper()
	ctx := g.t.Context()
	r, err := g.root.Get(ctx, prefix, clientv3.WithPrefix())
	if err != nil || len(r.Kvs) != 1 {
		g.t.Fatal(r, err)
	}
	left := int64(-1)
	harness.Eventually(g.t, "the lease is renewed", func() error {
		now, err := g.root.TimeToLive(ctx, clientv3.LeaseID(r.Kvs[0].Lease))
		if err != nil || now.TTL <= 0 {
			g.t.Fatal(now, err)
		}
		if left >= 0 && now.TTL > left {
			return nil
		}
		left = now.TTL
		return fmt.Errorf("%d seconds are left", left)
	})
}
