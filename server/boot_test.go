package server

import (
	"testing"
	"time"

	"leasehold.dev/internal/storage"
	"leasehold.dev/lease"
)

// A crash between the identity and the first snapshot leaves a directory from
// which the next start founds the same cluster.
func TestFoundingIsRepeatable(t *testing.T) {
	t.Parallel()
	c := testConfig(t.TempDir())
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

// What flags say of leases reaches the lessor.
func TestLessorSettings(t *testing.T) {
	c := DefaultConfig()
	c.Lease.CheckpointInterval = 7 * time.Second
	c.Lease.Untended = 40 * time.Millisecond
	c.Lease.SpreadRate = 3
	want := lease.Config{CheckpointInterval: 7000, Untended: 40, SpreadRate: 3}
	if got := machineConfig(c).Lease; got != want {
		t.Errorf("the lessor is told %+v, want %+v", got, want)
	}
}
