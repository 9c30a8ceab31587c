package server

import (
	"testing"

	"leasehold.dev/internal/storage"
)

// A crash between the identity and the first snapshot leaves a directory from
// which the next start founds the same cluster.
func TestFoundingIsRepeatable(t *testing.T) {
	c := testConfig(t.TempDir())
	members := founders(c)
	disk, err := storage.Open(storage.Config{Dir: c.DataDir})
	if err != nil {
		t.Fatal(err)
	}
	id := storage.Identity{
		Cluster: clusterID(members), Member: members[0].ID, Name: c.Name,
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
