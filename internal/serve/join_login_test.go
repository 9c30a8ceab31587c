package serve

import (
	"os"
	"path/filepath"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	servers "leasehold.dev/test/process"
	"leasehold.dev/test/tier"
)

// TestJoinWithUsers checks that a member that logs in as root can join, with one command, a cluster
// that has users. It can log in as any user if root has added the member before. Otherwise the
// error says what is wrong.
func TestJoinWithUsers(t *testing.T) {
	tier.Campaign(t)
	addr := servers.MustFreeAddr()
	run(t, "member", "--data-dir", t.TempDir(), "--listen-client-urls", "http://"+addr,
		"--listen-peer-urls", "http://"+servers.MustFreeAddr(), "--bcrypt-cost=4",
	).until("ready to serve")
	c, _ := dialTest(t, addr)
	ctx := t.Context() // processes take a long time on a slow machine
	do := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	for _, user := range []string{"root", "alice"} {
		password := user + " has this password"
		do(c.UserAdd(ctx, user, password))
		do(nil, os.WriteFile(filepath.Join(dir, user), []byte(password+"\n"), 0o600))
	}
	do(c.UserGrantRole(ctx, "root", "root"))
	do(c.AuthEnable(ctx))
	as := func(user string) []string {
		return []string{"--join-user", user, "--join-password-file", filepath.Join(dir, user)}
	}
	do(nil, os.WriteFile(filepath.Join(dir, "eve"), []byte("a wrong password"), 0o600))
	do(nil, os.WriteFile(filepath.Join(dir, "mallory"), nil, 0o600))
	j := newJoining(t, addr)
	for _, x := range []struct {
		args []string
		says string
	}{
		{nil, "the cluster requires a login: log in as a user with the role root (--join-user"},
		{as("eve"), "the cluster rejected the login of --join-user eve"},
		{as("mallory"), "mallory is empty"},
		{as("nobody"), "no such file"},
		{as("alice"), "adding or promoting a member requires the role root"},
		{[]string{"--join-token-file", filepath.Join(dir, "eve")}, "invalid auth token"},
	} {
		p := j.start(x.args...)
		p.until(x.says)
		if code := p.exit(); code == 0 {
			t.Errorf("%q: exit code 0", x.args)
		}
	}

	root, err := clientv3.New(clientv3.Config{
		Endpoints: []string{addr}, Username: "root", Password: "root has this password",
	})
	do(root, err)
	defer root.Close()
	added, err := root.MemberAddAsLearner(ctx, []string{j.peer})
	do(added, err)
	p := j.start(as("alice")...)
	p.until("the cluster already lists this member")
	p.until("this member remains a learner")
	do(root.MemberRemove(ctx, added.Member.ID))
	p.until("removed from the cluster")

	newJoining(t, addr).start(as("root")...).until("became a voter")
}
