package serve

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/storage"
	servers "leasehold.dev/test/process"
)

// TestInitAddressInUse checks that no cluster is founded if another process listens on one of
// its addresses.
func TestInitAddressInUse(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", servers.MustFreeAddr()) // the address stays reserved after Close
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	dir := filepath.Join(t.TempDir(), "data")
	found := func(join string) error {
		c := InitCommand()
		c.SetOut(io.Discard)
		c.SetArgs([]string{"--data-dir", dir, "--join", join})
		return c.Execute()
	}
	if err := found(l.Addr().String()); err == nil || !strings.Contains(err.Error(), "something is listening") {
		t.Errorf("beside a stranger: %v", err)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("something was founded")
	}
	l.Close()
	if err := found(l.Addr().String()); err != nil {
		t.Errorf("with nobody there: %v", err)
	}
}

// TestJoinAfterHalfInit checks that a joining member prints advice instead of waiting if the
// founding of the cluster was interrupted.
func TestJoinAfterHalfInit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	disk, err := storage.Open(storage.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	id := storage.Identity{Cluster: 1, Member: 2, Name: "a", Incarnation: 3}
	if err := disk.Bootstrap(id, &raftpb.ConfState{Voters: []uint64{2}}); err != nil {
		t.Fatal(err)
	}
	if err := disk.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := look(dir); err == nil || !strings.Contains(err.Error(), "leasehold init") {
		t.Errorf("it says %v", err)
	}
}
