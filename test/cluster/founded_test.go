package cluster

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"leasehold.dev/test/harness"
	"leasehold.dev/test/process"
	"leasehold.dev/test/tier"
)

// flags returns the member's flags, except those that identify its cluster.
func (m *member) flags() []string {
	return []string{
		"--name", m.name, "--data-dir", m.data,
		"--listen-client-urls", m.url, "--advertise-client-urls", m.url,
		"--listen-peer-urls", m.peer, "--initial-advertise-peer-urls", m.peer,
	}
}

// command runs the binary and returns its output.
func command(t *testing.T, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, server.Path(t), args...)
	cmd.Env = harness.Environ()
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// fails checks that a command fails and that its output contains the given words.
func fails(t *testing.T, words []string, args ...string) {
	t.Helper()
	out, err := command(t, args...)
	if err == nil {
		t.Errorf("%v succeeded: %s", args, out)
	}
	for _, w := range words {
		if !strings.Contains(out, w) {
			t.Errorf("%v: %q is missing in: %s", args, w, out)
		}
	}
}

// TestFoundedOnce follows the documented setup. The first founder loses its disk and is restarted
// with an empty directory, once as documented and once as a founder. Neither restart may grant a
// lock that is held. Clients that know the cluster's ID reject another cluster, and the health
// check reports one.
func TestFoundedOnce(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	c := &cluster{t: t}
	var urls []string
	for i := range 3 {
		m := newMember(t, fmt.Sprintf("m%d", i+1))
		m.admin = client(t, m)
		c.members, urls = append(c.members, m), append(urls, m.url)
	}
	first, all := c.members[0], strings.Join(urls, ",")
	founding := append([]string{"init", "--join", all}, first.flags()...)
	if out, err := command(t, founding...); err != nil || !strings.Contains(out, "created cluster") {
		t.Fatalf("%v: %s", err, out)
	}
	fails(t, []string{"already belongs to a cluster"}, founding...)
	for _, m := range c.members {
		m.args = append([]string{"serve", "--join", all}, m.flags()...)
		t.Cleanup(m.cleanup)
		m.launch()
		m.serves()
	}
	harness.Eventually(t, "all vote", func() error {
		for _, m := range c.list() {
			if m.IsLearner {
				return fmt.Errorf("%s does not vote", m.Name)
			}
		}
		return nil
	})
	r, err := first.admin.Get(soon(t), "k")
	if err != nil {
		t.Fatal(err)
	}
	id := fmt.Sprintf("%x", r.Header.ClusterId)
	run := exec.Command(server.Path(t), "--endpoints", all, "--cluster-id", id,
		"run", "--lock", "l", "--", "sleep", "600")
	run.Env = harness.Environ()
	holder, err := process.Start(run, first.log+".holder", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = holder.Signal(syscall.SIGKILL) })
	held := []string{"--endpoints", all, "run", "--lock", "l", "--try", "--", "true"}
	harness.Eventually(t, "the lock is held", func() error {
		if out, err := command(t, held...); err == nil || !strings.Contains(out, "locked") {
			return fmt.Errorf("%v: %s", err, out)
		}
		return nil
	})

	first.kill()
	first.wipe()
	first.launch() // start it as documented
	if err := first.wait(); err == nil || !first.wrote("--replace") {
		t.Errorf("%v: %s", err, first.Tail())
	}
	first.wipe()
	fails(t, []string{"a cluster already responds there"}, founding...)
	first.args = append([]string{"serve"}, first.flags()...)
	first.launch() // start it as a founder
	first.refusesToServe()
	fails(t, []string{"locked"}, "--endpoints", all, "--cluster-id", id,
		"run", "--lock", "l", "--try", "--", "true")

	other := newMember(t, "other")
	other.admin = client(t, other)
	other.args = append([]string{"serve"}, other.flags()...)
	t.Cleanup(other.cleanup)
	other.launch()
	other.serves()
	fails(t, []string{id, "belongs to cluster"}, "--endpoints", other.url, "--cluster-id", id,
		"run", "--lock", "l", "--try", "--", "true")
	fails(t, []string{id, "belongs to cluster"}, "--endpoints", other.url, "--cluster-id", id,
		"put", "k", "v")
	both := c.members[1].url + "," + other.url
	fails(t, []string{id, other.url + " is unhealthy"}, "endpoint", "health", "--endpoints", both)
	fails(t, []string{"degraded", "belongs to another cluster"}, "status", "--endpoints", both)
	out, err := command(t, "endpoint", "health", "--endpoints", strings.Join(urls[1:], ","))
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
