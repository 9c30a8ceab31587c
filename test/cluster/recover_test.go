package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/net/http2"

	"leasehold.dev/test/harness"
	"leasehold.dev/test/tier"
)

// recovers runs "leasehold recover", which must exit with the code and print all of want.
func recovers(t *testing.T, code int, args []string, want ...string) {
	t.Helper()
	// Without a leader, the timeout elapses twice.
	if err := tryRecover(t, "5s", code, args, want); err != nil {
		t.Fatal(err)
	}
}

// recoversServed is like recovers, but for a cluster that is being served by the running members.
// An election changes the result, so it retries if one took place.
func recoversServed(t *testing.T, running []*member, code int, args []string, want ...string) {
	t.Helper()
	for {
		term := terms(t, running)
		err := tryRecover(t, patience.String(), code, args, want)
		if err == nil {
			return
		}
		if terms(t, running) == term {
			t.Fatal(err)
		}
		t.Logf("during an election: %v", err)
	}
}

// terms waits until all members are serving, so that no election is pending. It returns the sum of
// their terms, which grows with each election.
func terms(t *testing.T, list []*member) (sum uint64) {
	t.Helper()
	for _, m := range list {
		m.serves()
	}
	for _, m := range list {
		harness.Eventually(t, m.name+" reports its term", func() error {
			s, err := m.status()
			sum += s.GetRaftTerm()
			return err
		})
	}
	return sum
}

// tryRecover runs "leasehold recover". It returns an error if the exit code or the output is wrong.
func tryRecover(t *testing.T, within string, code int, args, want []string) error {
	t.Helper()
	limits := []string{"recover", "--dial-timeout=" + patience.String(), "--command-timeout=" + within}
	out, err := exec.Command(server.Path(t), append(limits, args...)...).CombinedOutput()
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	}
	if got != code {
		return fmt.Errorf("recover %q ends with %d, want %d:\n%s", args, got, code, out)
	}
	for _, w := range want {
		if !strings.Contains(string(out), w) {
			return fmt.Errorf("recover %q: %q is missing in:\n%s", args, w, out)
		}
	}
	return nil
}

// joins configures the member to join another member's cluster.
func (m *member) joins(other *member) {
	m.configure("", "", "")
	args := m.args[:0]
	for i := 0; i < len(m.args); i++ {
		if strings.HasPrefix(m.args[i], "--initial-cluster") {
			i++ // skip the flag's value too
			continue
		}
		args = append(args, m.args[i])
	}
	m.args = append(args, "--join", other.url)
}

// has checks that the member's own state contains a value.
func (m *member) has(key, value string) {
	m.t.Helper()
	r, err := m.admin.Get(soon(m.t), key)
	if err != nil || len(r.Kvs) != 1 || string(r.Kvs[0].Value) != value {
		m.t.Errorf("through %s: %v, %v", m.name, r, err)
	}
}

// kept returns the old directory, which must exist next to the current directory.
func (m *member) kept() string {
	m.t.Helper()
	found, err := filepath.Glob(m.data + ".before-recovery-*")
	if err != nil || len(found) != 1 {
		m.t.Fatalf("kept %q, %v", found, err)
	}
	return found[0]
}

// TestRecoverMajority checks that recover gives up a permanently lost majority only if its members
// are named and --yes is set, and never while they may return. The cluster keeps all acknowledged
// data. Lost members that return do not continue as a second cluster.
func TestRecoverMajority(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	c := newCluster(t, 3)
	rest, others := c.members[0], c.members[1:]
	g, err := rest.admin.Grant(soon(t), 600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rest.admin.Put(soon(t), "k", "v", clientv3.WithLease(g.ID)); err != nil {
		t.Fatal(err)
	}
	for _, m := range others {
		m.kill()
	}
	recovers(t, 9, []string{"--endpoints", rest.url}, "no majority is responding",
		"1 of 3 voters respond", "check first: m2", "check first: m3", "bring them back")
	recovers(t, 9, []string{"--data-dir", rest.data, "--endpoints", rest.url, "--yes"},
		"no majority is responding", "is in use by a running member")
	rest.kill()
	here := []string{"--data-dir", rest.data}
	recovers(t, 9, append(here, "--yes"), "the majority is lost or unreachable",
		"up to revision 2 ", "check first: m2, at", "--lost NAME,NAME")
	lost := append(here, "--lost", "m2,m3", "--yes")
	others[0].launch()
	harness.Eventually(t, "m2 answers", func() error {
		return greets(strings.TrimPrefix(others[0].peer, "http://"))
	})
	recovers(t, 128, lost, "m2 responds at")
	others[0].kill()
	recovers(t, 128, append(here, "--lost", "m2", "--yes"), "the others form a majority")
	recovers(t, 128, append(here, "--lost", "m2,m4", "--yes"), "no other member has this name")
	recovers(t, 9, lost[:len(lost)-1], "(--yes does it)")
	recovers(t, 0, lost, "done: created a single-member cluster")
	if _, err := os.Stat(filepath.Join(rest.kept(), "identity")); err != nil {
		t.Errorf("the old data: %v", err)
	}
	rest.launch()
	rest.serves()
	rest.has("k", "v")
	if r, err := rest.admin.TimeToLive(soon(t), g.ID); err != nil || r.TTL <= 0 {
		t.Errorf("the lease: %v, %v", r, err)
	}
	for _, m := range others {
		m.launch()
	}
	for _, m := range others {
		if err := m.wait(); err != nil || !m.wrote("removed from the cluster") {
			t.Errorf("%s, which was given up, ended with %v\n%s", m.name, err, m.Tail())
		}
	}
	recovers(t, 9, []string{"--data-dir", others[0].data, "--endpoints", rest.url}, "was removed")
	recovers(t, 0, []string{"--data-dir", others[0].data, "--endpoints", rest.url, "--yes"})
	others[0].joins(rest)
	others[0].launch()
	others[0].serves()
	others[0].has("k", "v")
}

// TestRecoverInUse checks that recover detects that a directory is in use, and by which member. It
// changes neither the directory nor an unrelated cluster.
func TestRecoverInUse(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	c, alone := newCluster(t, 1), newCluster(t, 1)
	m, other := c.members[0], alone.members[0]
	used := fmt.Sprintf("is in use by a running member: %s (member ", other.name)
	process := fmt.Sprintf(", process %d, since ", other.PID())
	to := []string{"--endpoints", m.url, "--data-dir", other.data}
	recoversServed(t, c.members, 9, append(slices.Clone(to), "--yes"), "the data directory is in use "+
		"by a member of another cluster", used, process, "recover changes neither")
	recoversServed(t, c.members, 9, append(slices.Clone(to), "-o", "json"), `"cause":"OTHER_CLUSTER"`)
	recoversServed(t, c.members, 128, append(slices.Clone(to), "--member", "m7"),
		"is the data directory of "+other.name, ", not of m7")
	// The cluster is found through the directory, so no address is needed.
	recoversServed(t, alone.members, 0, to[2:], "nothing to recover", "note: ", used, process)
	recovers(t, 128, []string{
		"--data-dir", other.data, "--endpoints", "127.0.0.1:1", "--lost", "m2",
	}, used, "stop it before declaring members lost")
	other.kill()
	recoversServed(t, c.members, 9, append(slices.Clone(to), "--yes"),
		"the data is from another cluster", "recover changes neither")
	other.launch()
	other.serves()
}

// TestRecoverMember checks that recover detects when a member's data is lost, damaged or rolled
// back. It restores the member from the other members without destroying the remaining data.
func TestRecoverMember(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	c := newCluster(t, 3)
	bad, first := c.members[2], c.members[0]
	if _, err := first.admin.Put(soon(t), "k", "v"); err != nil {
		t.Fatal(err)
	}
	flags := []string{"--endpoints", first.url + "," + c.members[1].url, "--data-dir", bad.data}
	recoversServed(t, c.members, 0, flags, "nothing to recover")
	for _, x := range []struct {
		harm func(t *testing.T, c *cluster, m *member) (keeps string)
		want string
		code string
	}{
		{loseDisk, "the member's disk is lost", "DISK_LOST"},
		{damageLog, "the member's data is damaged", "DAMAGED"},
		{rollBack, "the member's data is an older copy", "ROLLED_BACK"},
	} {
		name := x.harm(t, c, bad)
		left := c.others(bad)
		var before []byte
		if name != "" {
			before, _ = os.ReadFile(filepath.Join(bad.data, name))
		}
		other := append(slices.Clone(flags), "--member", first.name, "--yes")
		if name == "identity" {
			recoversServed(t, left, 128, other, "is the data directory of "+bad.name)
		} else { // unreadable data does not identify its member
			recoversServed(t, left, 1, other, "a process responds at")
			recoversServed(t, left, 9, append(slices.Clone(flags), "--yes"), x.want,
				"only if it belongs to "+bad.name)
		}
		flags := append(slices.Clone(flags), "--member", bad.name)
		recoversServed(t, left, 9, flags, x.want, "(--yes does it): leasehold member remove",
			"--join")
		recoversServed(t, left, 9, append(slices.Clone(flags), "-o", "json"), `"cause":"`+x.code+`"`)
		recoversServed(t, left, 0, append(flags, "--yes"), "done: removed member")
		if name != "" {
			after, err := os.ReadFile(filepath.Join(bad.kept(), name))
			if err != nil || len(before) == 0 || !bytes.Equal(before, after) {
				t.Errorf("%s has %d bytes of %d, %v", name, len(after), len(before), err)
			}
			if err := os.RemoveAll(bad.kept()); err != nil {
				t.Fatal(err)
			}
		}
		bad.joins(first)
		bad.launch()
		bad.serves()
		bad.has("k", "v")
		recoversServed(t, c.members, 0, flags, "nothing to recover")
	}
}

func loseDisk(_ *testing.T, _ *cluster, m *member) string {
	m.kill()
	m.wipe()
	return ""
}

// damageLog changes a byte in the middle of the log.
func damageLog(t *testing.T, _ *cluster, m *member) string {
	t.Helper()
	m.kill()
	logs, err := filepath.Glob(filepath.Join(m.data, "log", "*.segment"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("%q, %v", logs, err)
	}
	for _, name := range logs {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if end := len(bytes.TrimRight(b, "\x00")); end > 0 {
			b[end/2] ^= 0x55
		}
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	name, err := filepath.Rel(m.data, logs[0])
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// rollBack restores an older copy of the member's data, and waits until the leader detects it. A
// newly elected leader does not know how far the member's log reached. In that case rollBack
// retries.
func rollBack(t *testing.T, c *cluster, m *member) string {
	t.Helper()
	for !rolledBack(t, c, m) {
	}
	return "identity"
}

func rolledBack(t *testing.T, c *cluster, m *member) (foundOut bool) {
	t.Helper()
	if err := m.end(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	copied := t.TempDir()
	if err := os.CopyFS(copied, os.DirFS(m.data)); err != nil {
		t.Fatal(err)
	}
	m.launch()
	m.serves()
	for range 20 {
		c.writes(c.members[0])
	}
	m.serves() // now it has the writes
	m.kill()
	m.wipe()
	if err := os.CopyFS(m.data, os.DirFS(copied)); err != nil {
		t.Fatal(err)
	}
	m.launch()
	harness.Eventually(t, m.name+" ends or serves", func() error {
		if m.Ended() {
			foundOut = true
			return nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := m.admin.Get(ctx, "k")
		return err
	})
	if !foundOut {
		return false
	}
	var exit *exec.ExitError
	if err := m.wait(); !errors.As(err, &exit) || exit.ExitCode() != 8 {
		t.Errorf("%s on an older copy ends with %v\n%s", m.name, err, m.Tail())
	}
	if !m.wrote(`"cause":"ROLLED_BACK"`) {
		t.Errorf("%s does not log the code of why it ends\n%s", m.name, m.Tail())
	}
	return true
}

// greets checks that an HTTP/2 server answers. A successful connection does not suffice, because a
// starting member briefly opens its ports to test them.
func greets(addr string) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // everything was read
	if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		return err
	}
	if err := http2.NewFramer(conn, conn).WriteSettings(); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 1))
	return err
}
