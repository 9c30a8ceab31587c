package serve

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"leasehold.dev/server"
	"leasehold.dev/test/harness"
	servers "leasehold.dev/test/process"
	"leasehold.dev/test/tier"
)

// joining is a member that joins with one command, which can be run repeatedly.
type joining struct {
	t    *testing.T
	args []string
	dir  string
	peer string
}

func newJoining(t *testing.T, to string) *joining {
	t.Helper()
	j := &joining{t: t, dir: filepath.Join(t.TempDir(), "data")}
	j.peer = "http://" + servers.MustFreeAddr()
	j.args = []string{
		"--join", to, "--data-dir", j.dir,
		"--listen-client-urls", "http://" + servers.MustFreeAddr(),
		"--listen-peer-urls", j.peer,
	}
	return j
}

func (j *joining) start(more ...string) *program {
	j.t.Helper()
	return run(j.t, "member", append(more, j.args...)...)
}

// ids returns the voters' IDs by peer URL, and the number of learners.
func ids(ctx context.Context, t *testing.T, c *clientv3.Client) (map[string]uint64, int) {
	t.Helper()
	list, err := c.MemberList(ctx)
	if err != nil {
		t.Fatal(err)
	}
	voters, learners := make(map[string]uint64), 0
	for _, m := range list.Members {
		if m.IsLearner {
			learners++
			continue
		}
		voters[m.PeerURLs[0]] = m.ID
	}
	return voters, learners
}

// TestJoinProcesses checks that three commands create a cluster of three members. An interrupted
// join resumes, a single command replaces a member whose disk is lost if this is requested, and a
// removed member shuts down cleanly.
func TestJoinProcesses(t *testing.T) {
	tier.Campaign(t)
	addr := servers.MustFreeAddr()
	run(t, "member", "--data-dir", t.TempDir(), "--listen-client-urls", "http://"+addr,
		"--listen-peer-urls", "http://"+servers.MustFreeAddr()).until("ready to serve")
	c, _ := dialTest(t, addr)
	ctx := t.Context()
	one, two := newJoining(t, addr), newJoining(t, addr)
	one.start().until("became a voter")

	// Kill the member in the middle of the join. The cluster has added it and may have sent it the
	// state.
	p := two.start()
	p.until("added to the cluster as a learner")
	p.signal(syscall.SIGKILL)
	p.exit()
	p = two.start()
	p.until("became a voter")
	voters, learners := ids(ctx, t, c)
	if len(voters) != 3 || learners != 0 || voters[two.peer] == 0 || voters[one.peer] == 0 {
		t.Fatalf("voters %v, %d learners", voters, learners)
	}
	p.signal(syscall.SIGTERM)
	if code := p.exit(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	p = two.start()
	p.until("ignoring --join")
	p.until("ready to serve")

	// Simulate the loss of its disk.
	p.signal(syscall.SIGKILL)
	p.exit()
	if err := os.RemoveAll(two.dir); err != nil {
		t.Fatal(err)
	}
	p = two.start()
	p.until("use --replace")
	if code := p.exit(); code == 0 {
		t.Error("a voter without its data was started")
	}
	p = two.start("--replace")
	p.until("became a voter")
	old := voters[two.peer]
	voters, learners = ids(ctx, t, c)
	if len(voters) != 3 || learners != 0 || voters[two.peer] == old || voters[two.peer] == 0 {
		t.Fatalf("voters %v, %d learners", voters, learners)
	}

	harness.Eventually(t, "the member is removed", func() error {
		_, err := c.MemberRemove(ctx, voters[two.peer])
		if err != nil && !errors.Is(err, rpctypes.ErrUnhealthy) { // a link was briefly down
			t.Fatal(err)
		}
		return err
	})
	p.until("removed from the cluster")
	if code := p.exit(); code != 0 {
		t.Errorf("a member that was removed ended with %d", code)
	}
}

// TestJoinWithoutAddresses checks that a member needs only the cluster's address to join, and that
// the addresses it chooses work.
func TestJoinWithoutAddresses(t *testing.T) {
	tier.Campaign(t)
	addr := servers.MustFreeAddr()
	run(t, "member", "--data-dir", t.TempDir(), "--listen-client-urls", "http://"+addr,
		"--listen-peer-urls", "http://"+servers.MustFreeAddr()).until("ready to serve")
	p := run(t, "member", "--join", addr, "--data-dir", t.TempDir())
	p.until("became a voter")
	c, ctx := dialTest(t, addr)
	list, err := c.MemberList(ctx)
	if err != nil || len(list.Members) != 2 {
		t.Fatal(list, err)
	}
	for _, m := range list.Members {
		if m.ClientURLs[0] == "http://"+addr {
			continue
		}
		c, ctx := dialTest(t, m.ClientURLs...)
		for learner := true; learner; { // until it has applied the leader's entries
			s, err := c.Status(ctx, m.ClientURLs[0])
			if err != nil {
				t.Fatal(err)
			}
			learner = s.IsLearner
		}
		if _, err := c.Put(ctx, "key", "value"); err != nil {
			t.Error(err)
		}
		if !strings.HasPrefix(m.Name, "127.0.0.1-") {
			t.Errorf("its name is %q", m.Name)
		}
	}
}

// TestJoinTLS checks that the same command joins a cluster with TLS. Without TLS settings, the
// error mentions them.
func TestJoinTLS(t *testing.T) {
	tier.Campaign(t)
	addr := servers.MustFreeAddr()
	secure := []string{"--auto-tls", "--peer-auto-tls"}
	run(t, "member", append(secure, "--data-dir", t.TempDir(),
		"--listen-client-urls", "https://"+addr,
		"--listen-peer-urls", "https://"+servers.MustFreeAddr())...).until("ready to serve")
	run(t, "member", append(secure, "--join", addr,
		"--data-dir", t.TempDir())...).until("became a voter")
	run(t, "member", "--join", addr, "--data-dir", t.TempDir()).until("speaks TLS: use https://")
}

// TestJoinOfAnotherVersion checks that a member is not added if its release does not support the
// cluster version. It does not wait for other members, even if it knows nothing about them yet.
func TestJoinOfAnotherVersion(t *testing.T) {
	foreign := fmt.Errorf("run 0.2: %w", server.ErrUnsupportedVersion)
	away := status.Error(codes.Unavailable, "away")
	c := &fakeCluster{members: []*pb.Member{founder()}, lost: errors.Join(away, foreign)}
	a := newAttempt(t, c)
	if _, err := a.prepare(t.Context(), a.cfg); !errors.Is(err, server.ErrUnsupportedVersion) {
		t.Errorf("error %v", err)
	}
	if got := strings.Join(c.calls, " "); got != "list" {
		t.Errorf("calls: %s", got)
	}
}
