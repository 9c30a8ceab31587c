package server

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/replica"
	"leasehold.dev/internal/storage"
	"leasehold.dev/test/virtual"
)

// alter changes a value in the log of a stopped member and recomputes the checksums.
func alter(t *testing.T, dir, value, other string) {
	t.Helper()
	disk, err := storage.Open(storage.Config{Dir: dir, Logger: testConfig(dir).Logger})
	if err != nil {
		t.Fatal(err)
	}
	first, err := disk.FirstIndex()
	last, err2 := disk.LastIndex()
	entries, err3 := disk.Entries(first, last+1, 1<<30)
	if err := errors.Join(err, err2, err3); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(entries, func(e *raftpb.Entry) bool {
		return bytes.Contains(e.GetData(), []byte(value))
	})
	if i < 0 {
		t.Fatalf("no entry has %q", value)
	}
	entries[i].Data = bytes.ReplaceAll(entries[i].GetData(), []byte(value), []byte(other))
	if err := errors.Join(disk.Append(entries[i:], nil), disk.Close()); err != nil {
		t.Fatal(err)
	}
}

// endsDamaged checks that a member stops because its data is damaged, and that the error gives
// advice.
func endsDamaged(t *testing.T, r *running) {
	t.Helper()
	var err error
	select {
	case err = <-r.done:
		r.done <- nil
	case <-time.After(time.Minute):
		t.Fatal("goes on")
	}
	var code interface{ ExitCode() int }
	if !errors.Is(err, replica.ErrDamaged) || !errors.As(err, &code) ||
		code.ExitCode() != 8 || !strings.Contains(err.Error(), "--join ADDRESS --replace") {
		t.Errorf("ended with %v", err)
	}
}

// TestAlteredMemberStops checks that a member whose data was altered stops, preserves the evidence,
// and does not start on the same data again. The other members report it and keep serving.
func TestAlteredMemberStops(t *testing.T) { virtual.Test(t, testAlteredMemberStops) }

func testAlteredMemberStops(t *testing.T) {
	configs := clusterConfigs(t, 3)
	onDisk(configs...)
	for i := range configs {
		configs[i].Raft.CompareEvery = 300 * time.Millisecond
	}
	members := runAll(t, configs...)
	members[0].put(t, "k", "as it was written")
	eventually(t, "all members have the key", func() bool { return members[2].has("k") != "none" })
	if err := members[2].stop(); err != nil {
		t.Fatal(err)
	}
	alter(t, configs[2].DataDir, "as it was written", "as it was altered")
	bad := begin(t, configs[2])
	endsDamaged(t, bad)
	kept, err := filepath.Glob(filepath.Join(configs[2].DataDir, "damaged-*.backup"))
	if err != nil || len(kept) != 1 {
		t.Fatalf("kept %q, %v", kept, err)
	}
	data, err := os.ReadFile(kept[0])
	if err != nil || !bytes.Contains(data, []byte("as it was altered")) {
		t.Errorf("the evidence has not what the member had (%v)", err)
	}
	if _, err := BackupStatus(bytes.NewReader(data)); err != nil {
		t.Error(err)
	}
	endsDamaged(t, begin(t, configs[2]))
	servesWithout(t, members[:2], bad.node.member)
}

// servesWithout checks that members report the damaged member and keep serving, and that it can be
// removed.
func servesWithout(t *testing.T, members []*running, damaged uint64) {
	t.Helper()
	for _, m := range members {
		m.put(t, "k", "anew")
		list, err := m.client.AlarmList(t.Context())
		if err != nil || len(list.Alarms) != 1 || list.Alarms[0].MemberID != damaged ||
			list.Alarms[0].Alarm != pb.AlarmType_CORRUPT {
			t.Errorf("alarms %v, %v", list, err)
		}
		if got := (health{m.node, m.entrance}).Alarms(); len(got) != 0 {
			t.Errorf("probes take the member out for %v", got)
		}
	}
	eventually(t, "the damaged member is removed", func() bool {
		_, err := members[0].client.MemberRemove(t.Context(), damaged)
		// the other member was briefly unresponsive
		if err != nil && !errors.Is(err, rpctypes.ErrUnhealthy) {
			t.Fatal(err)
		}
		return err == nil
	})
	if list, err := members[0].client.AlarmList(t.Context()); err != nil || len(list.Alarms) != 0 {
		t.Errorf("alarms %v, %v", list, err)
	}
}
