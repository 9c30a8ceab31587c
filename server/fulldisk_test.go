package server

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/api/native"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/host"
	"leasehold.dev/internal/storage"
	"leasehold.dev/lease"
	"leasehold.dev/test/crashfs"
	"leasehold.dev/test/harness"
	"leasehold.dev/test/virtual"
)

// TestFullDisk checks that a member whose log fills the disk writes a snapshot and reuses the space
// of the old log. If there is no space for the snapshot, clients can still delete data, and leases
// still end. The test sets the size of the file system.
func TestFullDisk(t *testing.T) { virtual.Test(t, testFullDisk) }

func testFullDisk(t *testing.T) {
	files := crashfs.New()
	c := testConfig(t.TempDir())
	var log harness.Log
	c.Logger = slog.New(slog.NewTextHandler(&log, nil))
	c.host = withFiles(files)
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

	const tooLittle = storage.SegmentBytes / 2
	files.Limit(files.Used() + tooLittle)
	for range 2 * storage.SegmentBytes >> 20 {
		eventually(t, "writes go on", func() bool {
			put, err := m.client.Put(t.Context(), "a", string(make([]byte, 1<<20)))
			if err == nil {
				_, err = m.client.Compact(t.Context(), put.Header.Revision)
			}
			return err == nil
		})
	}
	first, err := m.core.disk.FirstIndex()
	if err != nil || first <= 3 || !log.Contains("wrote a snapshot") {
		t.Errorf("the log begins at %d: %v", first, err)
	}
	fillDisk(t, m, files)
	if _, err := m.client.Delete(t.Context(), "a"); err != nil {
		t.Errorf("a delete on a full disk: %v", err)
	}
	access := pb.NewAccessServiceClient(m.client.ActiveConnection())
	if _, err := access.SetLimits(t.Context(), &pb.SetLimitsRequest{Limits: &pb.Limits{
		Limits: []*pb.Limit{{Resource: pb.Limit_RESOURCE_BYTES, Max: 1 << 20}},
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
	letGo()
	eventually(t, "the lease ends", func() bool { return m.has("leased") == "none" })
	files.Limit(0)
	eventually(t, "writes go on", func() bool {
		_, err := m.client.Put(context.Background(), "b", "w")
		return err == nil
	})
}

// TestFollowerWithFullDisk checks that a follower with a full disk forwards writes, raises the
// alarm, and is neither healthy nor ready. Without space for the leader's entries, it directs
// clients to other members. A leader with a full disk transfers leadership.
func TestFollowerWithFullDisk(t *testing.T) { virtual.Test(t, testFollowerWithFullDisk) }

func testFollowerWithFullDisk(t *testing.T) {
	configs := clusterConfigs(t, 3)
	disks := make(map[string]*crashfs.FS)
	for i := range configs {
		files := crashfs.New()
		disks[configs[i].Name] = files
		configs[i].host = withFiles(files)
	}
	first, others := leader(t, runAll(t, configs...))
	full := others[0]
	putUntil := func(what string, until func() bool) {
		eventually(t, what, func() bool {
			done := until()
			if !done {
				others[1].put(t, "large", string(make([]byte, 1<<20)))
			}
			return done
		})
	}
	fill := func(m *running) {
		files := disks[m.cfg.Name]
		files.Limit(files.Used() + 64<<10) // too little space for a spare segment or a snapshot
		putUntil("the disk is full", m.node.writer.full.Load)
	}
	fill(full)
	full.put(t, "k", "v")
	if got := first.get(t, "k"); got != "v" {
		t.Errorf("the leader has %q", got)
	}
	for _, m := range []*running{first, full} {
		list, err := m.client.AlarmList(t.Context())
		if err != nil || (len(list.Alarms) == 1) != (m == full) {
			t.Errorf("%s: alarms %v, %v", m.cfg.Name, list, err)
		}
		h := health{m.node, m.entrance}
		if alarms := h.Alarms(); (len(alarms) == 1) != (m == full) || (h.Disk() != nil) != (m == full) {
			t.Errorf("%s: alarms of the health page %v, readiness %v", m.cfg.Name, alarms, h.Disk())
		}
	}
	putUntil("the follower refuses so that clients call another member", func() bool {
		_, err := full.node.Propose(t.Context(), &fsm.Put{Key: "k", Value: []byte("v")})
		return errors.Is(err, api.ErrDiskFull)
	})
	disks[full.cfg.Name].Limit(0)
	eventually(t, "the follower's disk has room", func() bool { return !full.node.writer.full.Load() })
	full.put(t, "k", "w")
	fill(first)
	eventually(t, "the leader hands over", first.node.elsewhere)
	first.put(t, "k", "x")
}

// onDisks returns the configurations of three members, and their disks by name.
func onDisks(t *testing.T) ([]Config, map[string]*crashfs.FS) {
	t.Helper()
	configs := clusterConfigs(t, 3)
	disks := make(map[string]*crashfs.FS)
	for i := range configs {
		disks[configs[i].Name] = crashfs.New()
		configs[i].host = withFiles(disks[configs[i].Name])
	}
	return configs, disks
}

// TestTwoFullDisks checks that when two of three disks are full, the member with free space becomes
// the leader and stays the leader. Writes resume once one of the full disks has space again.
func TestTwoFullDisks(t *testing.T) { virtual.Test(t, testTwoFullDisks) }

func testTwoFullDisks(t *testing.T) {
	configs, disks := onDisks(t)
	first, others := leader(t, runAll(t, configs...))
	second, roomy := others[0], others[1]
	all := []*running{first, second, roomy}
	for _, m := range []*running{first, second} {
		files := disks[m.cfg.Name]
		files.Limit(files.Used() + 64<<10) // too little space for a spare segment or a snapshot
	}
	eventually(t, "two disks are full", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _ = roomy.client.Put(ctx, "large", string(make([]byte, 1<<20)))
		return first.node.writer.full.Load() && second.node.writer.full.Load()
	})
	var leads []string
	for range 600 {
		<-time.After(100 * time.Millisecond)
		for _, m := range all {
			name := m.cfg.Name
			if m.node.status.Load().Leading && (len(leads) == 0 || leads[len(leads)-1] != name) {
				leads = append(leads, name)
			}
		}
	}
	if n := len(leads); n == 0 || n > 3 || leads[n-1] != roomy.cfg.Name {
		t.Errorf("these have led: %v; %s has room", leads, roomy.cfg.Name)
	}
	disks[first.cfg.Name].Limit(0)
	eventually(t, "writes go on", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := roomy.client.Put(ctx, "k", "v")
		return err == nil
	})
}

// TestPlannedStopBesideFullDisk checks that a leader that is stopping offers leadership first to a
// follower with a full disk, which declines, and then to the other follower. Of two followers that
// are equally up to date, the follower with the lower ID is asked first.
func TestPlannedStopBesideFullDisk(t *testing.T) { virtual.Test(t, testPlannedStopBesideFullDisk) }

func testPlannedStopBesideFullDisk(t *testing.T) {
	configs, disks := onDisks(t)
	first, others := leader(t, runAll(t, configs...))
	full, roomy := others[0], others[1]
	if full.node.member > roomy.node.member {
		full, roomy = roomy, full
	}
	files := disks[full.cfg.Name]
	files.Limit(files.Used() + 64<<10) // too little space for a spare segment or a snapshot
	eventually(t, "the disk is full", func() bool {
		if full.node.writer.full.Load() {
			return true
		}
		roomy.put(t, "large", string(make([]byte, 1<<20)))
		return false
	})
	eventually(t, "the followers are equal", func() bool {
		lags := first.core.stats.Load().Lags
		return len(lags) == 2 && lags[0].Entries+lags[1].Entries == 0
	})
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	if first.node.status.Load().Leading {
		t.Error("it stopped while it still led")
	}
}

// TestRepeatedOnFullDisk checks that a full disk does not prevent a response to a retry of a
// numbered write or of a grant, over any path. New writes and grants are rejected.
func TestRepeatedOnFullDisk(t *testing.T) { virtual.Test(t, testRepeatedOnFullDisk) }

func testRepeatedOnFullDisk(t *testing.T) {
	files := crashfs.New()
	c := testConfig(t.TempDir())
	c.host = withFiles(files)
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
	fillDisk(t, m, files)
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

// grantedBy returns the lease that a grant created or found.
func grantedBy(res fsm.Result) (info *lease.Info, existed bool) {
	v := res.Value
	if txn, ok := v.(*fsm.TxnResult); ok {
		v = txn.Responses[0]
	}
	return fsm.GrantResult(v)
}

// submittedTo receives the outcome of a submission.
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

// fillDisk leaves too little space for a snapshot or a spare log segment, and uses up the existing
// spare segment.
func fillDisk(t *testing.T, m *running, files *crashfs.FS) {
	t.Helper()
	files.Limit(files.Used() + 64<<10)
	eventually(t, "the disk is full", func() bool {
		_, err := m.client.Put(t.Context(), "large", string(make([]byte, 1<<20)))
		return errors.Is(err, rpctypes.ErrNoSpace)
	})
}

// withFiles returns a host that uses the given file system.
func withFiles(files storage.FS) *host.Host {
	h := virtual.Host()
	h.FS = files
	return h
}
