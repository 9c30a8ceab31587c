package server

import (
	"net/url"
	"testing"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/storage"
	"leasehold.dev/test/virtual"
)

// A crash between the identity and the first snapshot leaves a directory from
// which the next start founds the same cluster.
func TestFoundingIsRepeatable(t *testing.T) { virtual.Test(t, testFoundingIsRepeatable) }

func testFoundingIsRepeatable(t *testing.T) {
	c := testConfig(t.TempDir())
	onDisk(c)
	members := founders(c)
	disk, err := storage.Open(storage.Config{Dir: c.DataDir})
	if err != nil {
		t.Fatal(err)
	}
	id := storage.Identity{
		Cluster: c.clusterID(members, 0), Member: members[0].ID, Name: c.Name,
	}
	if err := disk.Bootstrap(id, confState(members)); err != nil {
		t.Fatal(err)
	}
	if err := disk.Close(); err != nil { // as far as it got
		t.Fatal(err)
	}
	r := run(t, c)
	if r.node.member != id.Member || r.node.cluster != id.Cluster {
		t.Errorf("founded member %x of cluster %x, then %x of %x",
			id.Member, id.Cluster, r.node.member, r.node.cluster)
	}
	r.put(t, "k", "v")
	if term := r.node.status.Load().Term; term != firstIndex+1 {
		t.Errorf("term %d, want the first election's, %d", term, firstIndex+1)
	}
}

// Founders begin with the same state, in whatever order each was told the URLs of one of them:
// their IDs do not depend on it, and a member whose state differs has to stop.
func TestFoundersBeginAlike(t *testing.T) {
	one, other := url.URL{Scheme: "http", Host: "h:1"}, url.URL{Scheme: "http", Host: "h:2"}
	var states [2]uint32
	for i, urls := range [][]url.URL{{one, other}, {other, one}} {
		c := DefaultConfig()
		c.Cluster.Initial = map[string][]url.URL{"a": urls}
		m := fsm.New(machineConfig(c))
		for _, n := range founders(c) {
			m.AddMember(n)
		}
		var err error
		if states[i], err = m.Image().Hash(); err != nil {
			t.Fatal(err)
		}
	}
	if states[0] != states[1] {
		t.Errorf("the hashes of their first states are %x", states)
	}
}

// Founders that were told different names found different clusters: their states would differ.
func TestFoundersOfOtherNames(t *testing.T) {
	var ids [2]uint64
	for i, name := range []string{"b", "other"} {
		c := DefaultConfig()
		c.Cluster.Initial = map[string][]url.URL{
			"a": {{Scheme: "http", Host: "h:1"}}, name: {{Scheme: "http", Host: "h:2"}},
		}
		ids[i] = c.clusterID(founders(c), 0)
	}
	if ids[0] == ids[1] {
		t.Errorf("both found cluster %x", ids[0])
	}
}
