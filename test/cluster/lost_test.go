package cluster

import (
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/test/process"
	"leasehold.dev/test/tier"
)

// wrote reports whether the member's output contains the given text.
func (m *member) wrote(text string) bool { return strings.Contains(process.Tail(m.log), text) }

// refusesToServe waits until a member exits with an error about lost data.
func (m *member) refusesToServe() {
	m.t.Helper()
	if err := m.wait(); err == nil {
		m.t.Errorf("%s ended without an error\n%s", m.name, m.Tail())
	}
	if !m.wrote("--join ADDRESS --replace") {
		m.t.Errorf("the error of %s does not say what to do:\n%s", m.name, m.Tail())
	}
}

// TestLostFounder checks that an acknowledged write survives the loss of a founder's disk. Two of
// three founders acknowledge a write while the third is down. Then the first loses its disk and the
// second its power. The first, with an empty directory, and the third must not form a cluster
// without the write. The first can be replaced.
func TestLostFounder(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	c := newCluster(t, 3)
	first, second, third := c.members[0], c.members[1], c.members[2]
	third.kill()
	c.writes(second)
	if _, err := second.admin.Put(soon(t), "k", "v"); err != nil {
		t.Fatal(err)
	}
	first.kill()
	second.kill()
	first.wipe()
	first.launch()
	third.launch()
	first.refusesToServe()
	second.launch()
	second.serves()
	for _, m := range []*member{second, third} {
		r, err := m.admin.Get(soon(t), "k")
		if err != nil || len(r.Kvs) != 1 {
			t.Errorf("through %s: %v, %v", m.name, r, err)
		}
	}
	first.launch() // with an empty directory, while the others are running
	first.refusesToServe()

	first.wipe()
	first.args = append(first.args, "--join", second.url, "--replace")
	for i, a := range first.args {
		if a == "--initial-cluster" || a == "--initial-cluster-state" {
			first.args[i], first.args[i+1] = "--max-learners", "1"
		}
	}
	first.launch()
	first.serves()
	r, err := first.admin.Get(soon(t), "k")
	if err != nil || len(r.Kvs) != 1 {
		t.Errorf("through the one that was replaced: %v, %v", r, err)
	}
}

// TestTwoLostFounders checks that, if two of three founders lose their disks, they do not form a
// new cluster while the third still belongs to this one. The third member's data remains readable.
func TestTwoLostFounders(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	c := newCluster(t, 3)
	if _, err := c.members[0].admin.Put(soon(t), "k", "v"); err != nil {
		t.Fatal(err)
	}
	rest := c.members[2]
	rest.serves()
	if _, err := rest.admin.Get(soon(t), "k"); err != nil { // the member has applied the write
		t.Fatal(err)
	}
	for _, m := range c.members[:2] {
		m.kill()
		m.wipe()
	}
	for _, m := range c.members[:2] {
		m.launch()
	}
	for _, m := range c.members[:2] {
		m.refusesToServe()
	}
	r, err := rest.admin.Get(soon(t), "k", clientv3.WithSerializable())
	if err != nil || len(r.Kvs) != 1 {
		t.Errorf("through the one that remembers: %v, %v", r, err)
	}
}
