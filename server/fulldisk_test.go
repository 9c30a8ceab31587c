package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/internal/host"
	"leasehold.dev/internal/listen"
)

// A member whose disk turns full writes a snapshot, to let go of the log before it. Clients may
// free space until the last of the room, which is for expiry: leases end all the same. Method: a
// file system that says how much is free what the test says.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	const total = 1 << 30 // so a reserve of 51 MiB, and a ballast of 10 MiB
	mem := vfs.NewMem()
	room := func(free uint64) {
		mem.TestingSetDiskUsage(vfs.DiskUsage{TotalBytes: total, AvailBytes: free})
	}
	room(total)
	c := testConfig(t.TempDir())
	var log lockedBuffer
	c.Logger = slog.New(slog.NewTextHandler(&log, nil))
	c.Host = withFiles(t, mem)
	m := run(t, c)
	m.put(t, "a", string(make([]byte, 1<<20)))
	m.put(t, "b", "v")
	var grant *clientv3.LeaseGrantResponse
	eventually(t, "a lease that does not end meanwhile has a key", func() bool {
		var err error
		if grant, err = m.client.Grant(t.Context(), 2); err != nil {
			return false
		}
		_, err = m.client.Put(t.Context(), "leased", "v", clientv3.WithLease(grant.ID))
		return err == nil
	})
	kept, letGo := context.WithCancel(t.Context())
	defer letGo()
	if _, err := m.client.KeepAlive(kept, grant.ID); err != nil {
		t.Fatal(err)
	}

	room(50 << 20)
	eventually(t, "the log is let go", func() bool {
		first, err := m.core.disk.FirstIndex()
		return err == nil && first > 3 && log.contains("wrote a snapshot")
	})
	if _, err := m.client.Delete(t.Context(), "a"); err != nil {
		t.Errorf("a delete on a full disk: %v", err)
	}
	room(3 << 20) // another program has taken the reserve: what is left is the ballast's
	eventually(t, "the ballast is given up", func() bool {
		_, err := m.client.Delete(t.Context(), "nothing")
		return err != nil
	})
	_, err := m.client.Delete(t.Context(), "b")
	if !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Errorf("a delete into the last room: %v", err)
	}
	letGo()
	eventually(t, "the lease ends", func() bool { return m.has("leased") == "none" })
	room(total)
	eventually(t, "writes go on", func() bool {
		_, err := m.client.Put(context.Background(), "b", "w")
		return err == nil
	})
}

// withFiles returns this machine with other files.
func withFiles(t *testing.T, files vfs.FS) *host.Host {
	t.Helper()
	boot, err := (*host.Host)(nil).Clock()
	if err != nil {
		t.Fatal(err)
	}
	return &host.Host{
		FS: files, Listen: listen.Listen, Dial: (&net.Dialer{}).DialContext, Boot: boot,
	}
}
