package server

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api/native"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/host"
	"leasehold.dev/lease"
	"leasehold.dev/test/virtual"
)

// A member whose disk turns full writes a snapshot, to let go of the log before it. Clients may
// free space until the last of the room, which is for expiry: leases end all the same. Method: a
// file system that says how much is free what the test says.
func TestFullDisk(t *testing.T) { virtual.Test(t, testFullDisk) }

func testFullDisk(t *testing.T) {
	const total = 1 << 30 // so a reserve of 51 MiB, and a ballast of 10 MiB
	mem := vfs.NewMem()
	room := func(free uint64) {
		mem.TestingSetDiskUsage(vfs.DiskUsage{TotalBytes: total, AvailBytes: free})
	}
	room(total)
	c := testConfig(t.TempDir())
	var log lockedBuffer
	c.Logger = slog.New(slog.NewTextHandler(&log, nil))
	c.Host = withFiles(mem)
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
	access := pb.NewAccessServiceClient(m.client.ActiveConnection())
	if _, err := access.SetLimits(t.Context(), &pb.SetLimitsRequest{Limits: &pb.Limits{
		Limits: []*pb.Limit{{Resource: pb.Limit_RESOURCE_BYTES, Most: 1 << 20}},
	}}); err != nil {
		t.Errorf("limits on a full disk: %v", err)
	}
	if full := m.measured(t, "leasehold_disk_full"); full[""] != 1 {
		t.Errorf("full by the metric: %v", full)
	}
	st, err := m.client.Status(t.Context(), m.client.Endpoints()[0])
	if err != nil || len(st.Errors) != 1 || !strings.HasPrefix(st.Errors[0], "DISK_FULL: ") {
		t.Errorf("status on a full disk: %+v, %v", st, err)
	}
	gone, more := clientv3.OpDelete("a"), clientv3.OpPut("c", "v")
	if _, err := m.client.Txn(t.Context()).Then(gone).Else(gone).Commit(); err != nil {
		t.Errorf("a transaction that only deletes: %v", err)
	}
	for _, txn := range []clientv3.Txn{
		m.client.Txn(t.Context()).Then(gone, more), m.client.Txn(t.Context()).Then(gone).Else(more),
	} {
		if _, err := txn.Commit(); !errors.Is(err, rpctypes.ErrNoSpace) {
			t.Errorf("a transaction that may put: %v", err)
		}
	}
	room(3 << 20) // another program has taken the reserve: what is left is the ballast's
	eventually(t, "the ballast is given up", func() bool {
		_, err := m.client.Delete(t.Context(), "nothing")
		return err != nil
	})
	_, err = m.client.Delete(t.Context(), "b")
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
// too, whichever way it comes, and so is a grant of the same request; what was not done is refused.
// Method: a put is repeated when the disk is full, and its number is used for another command, and
// others for the put. Grants with and without keys are repeated, and made by other requests.
func TestRepeatedOnFullDisk(t *testing.T) { virtual.Test(t, testRepeatedOnFullDisk) }

func testRepeatedOnFullDisk(t *testing.T) {
	mem := vfs.NewMem()
	room := func(free uint64) {
		mem.TestingSetDiskUsage(vfs.DiskUsage{TotalBytes: 1 << 30, AvailBytes: free})
	}
	room(1 << 30)
	c := testConfig(t.TempDir())
	c.Host = withFiles(mem)
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
	grant := func(id lease.ID, request string, puts ...*fsm.Put) fsm.Command {
		terms := lease.Terms{ID: id, TTL: 60_000, RequestID: request}
		return (&fsm.Grant{Terms: terms}).Repeatable(puts...)
	}
	grants := map[lease.ID]*lease.Info{}
	for id, c := range map[lease.ID]fsm.Command{
		1: grant(1, "r"), 2: grant(2, "r", &fsm.Put{Key: "leased", Lease: 2}),
	} {
		res, err := m.node.Propose(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		grants[id], _ = grantedBy(res)
	}
	room(50 << 20)
	eventually(t, "the disk is full", func() bool {
		_, err := m.client.Put(t.Context(), "other", "v")
		return errors.Is(err, rpctypes.ErrNoSpace)
	})
	for name, propose := range ways {
		for id, c := range map[lease.ID]fsm.Command{
			1: grant(1, "r"), 2: grant(2, "r", &fsm.Put{Key: "leased", Lease: 2}),
		} {
			res, err := propose(c)
			info, existed := grantedBy(res)
			if err != nil || !res.Repeated || !existed || info.Token != grants[id].Token {
				t.Errorf("%s: grant %d repeated: %+v, %v", name, id, res, err)
			}
		}
		for _, c := range []fsm.Command{
			grant(3, "r"), grant(1, "another"), grant(2, "another", &fsm.Put{Key: "leased"}),
			&fsm.Grant{Terms: lease.Terms{ID: 1, TTL: 60_000}},
		} {
			if res, err := propose(c); !errors.Is(err, fsm.ErrNoSpace) {
				t.Errorf("%s: %+v: %+v, %v", name, c, res, err)
			}
		}
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

// grantedBy returns the lease that the command of a grant has made, or found.
func grantedBy(res fsm.Result) (info *lease.Info, existed bool) {
	v := res.Value
	if txn, ok := v.(*fsm.TxnResult); ok {
		v = txn.Responses[0]
	}
	return fsm.GrantResult(v)
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

// withFiles returns a machine with the given disk.
func withFiles(files vfs.FS) *host.Host {
	h := virtual.Host()
	h.FS = files
	return h
}
