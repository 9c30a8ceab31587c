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

	"leasehold.dev/internal/api/native"
	"leasehold.dev/internal/fsm"
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

// TestRepeatedOnFullDisk: a write with a number that was done before is answered on a full disk,
// too, whichever way it comes; one that was not is refused. Method: a put is repeated when the disk
// is full, and its number is used for another command, and others for the put.
func TestRepeatedOnFullDisk(t *testing.T) {
	t.Parallel()
	mem := vfs.NewMem()
	room := func(free uint64) {
		mem.TestingSetDiskUsage(vfs.DiskUsage{TotalBytes: 1 << 30, AvailBytes: free})
	}
	room(1 << 30)
	c := testConfig(t.TempDir())
	c.Host = withFiles(t, mem)
	m := run(t, c)
	opened, err := m.node.Propose(t.Context(), &fsm.OpenSession{Nonce: 7})
	if err != nil {
		t.Fatal(err)
	}
	once := func(number uint64, c fsm.Command) *fsm.Once {
		return &fsm.Once{Session: opened.Value.(fsm.Session), Number: number, Command: c}
	}
	ways := map[string]func(fsm.Command) (fsm.Result, error){
		"a call": func(c fsm.Command) (fsm.Result, error) { return m.node.Propose(t.Context(), c) },
		"a stream": func(c fsm.Command) (fsm.Result, error) {
			to := make(submittedTo, 1)
			m.node.Submit([]native.Submission{{Command: c, To: to}})
			answered := <-to
			return answered.Result, answered.err
		},
	}
	put := &fsm.Put{Key: "k", Value: []byte("v")}
	first, err := m.node.Propose(t.Context(), once(1, put))
	if err != nil {
		t.Fatal(err)
	}
	room(50 << 20)
	eventually(t, "the disk is full", func() bool {
		_, err := m.client.Put(t.Context(), "other", "v")
		return errors.Is(err, rpctypes.ErrNoSpace)
	})
	for name, propose := range ways {
		res, err := propose(once(1, put))
		if err != nil || !res.Repeated || res.Revision != first.Revision {
			t.Errorf("%s: repeated: %+v, %v, the first was %+v", name, res, err, first)
		}
		for _, c := range []*fsm.Once{once(2, put), once(1, &fsm.Grant{})} {
			if _, err := propose(c); !errors.Is(err, fsm.ErrNoSpace) {
				t.Errorf("%s: number %d as %T: %v", name, c.Number, c.Command, err)
			}
		}
		other := once(1, put)
		other.Session.Nonce++
		if _, err := propose(other); !errors.Is(err, fsm.ErrNoSpace) {
			t.Errorf("%s: of another session: %v", name, err)
		}
	}
}

// submittedTo gets the outcome of a submission.
type submittedTo chan struct {
	fsm.Result
	err error
}

// Answered implements native.Answered.
func (to submittedTo) Answered(res fsm.Result, err error) {
	to <- struct {
		fsm.Result
		err error
	}{res, err}
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
