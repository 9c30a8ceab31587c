package server

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/test/harness"
	"leasehold.dev/test/virtual"
)

// TestCompactionFreesQuota checks that overwriting a key does not exhaust the quota. By default,
// history is compacted early, and an alarm raised in the meantime is cleared without an operator.
func TestCompactionFreesQuota(t *testing.T) { virtual.Test(t, testHistoryMakesRoom) }

func testHistoryMakesRoom(t *testing.T) {
	c := testConfig(t.TempDir())
	c.Limits.QuotaBackendBytes = 1 << 20
	r := run(t, c)
	value := string(make([]byte, 16<<10))
	for range 5 * c.Limits.QuotaBackendBytes / int64(len(value)) {
		eventually(t, "a put goes through", func() bool {
			_, err := r.client.Put(t.Context(), "lock", value)
			if err != nil && !errors.Is(err, rpctypes.ErrNoSpace) {
				t.Fatal(err)
			}
			return err == nil
		})
	}
	eventually(t, "no alarm is left", func() bool {
		a, err := r.client.AlarmList(t.Context())
		return err == nil && len(a.Alarms) == 0
	})
}

// TestRelief checks that half of the history is compacted when space runs low. A thousand revisions
// are kept for watchers unless almost no space is left.
func TestRelief(t *testing.T) {
	const quota = 1600
	for _, c := range []struct{ size, quota, revision, compacted, want int64 }{
		{1200, quota, 9000, 1000, 0},
		{1201, quota, 9000, 1000, 5000},
		{1500, quota, 9000, 7500, 8000},
		{1500, quota, 9000, 8500, 8000}, // already compacted
		{1500, quota, 500, 0, 0},
		{1501, quota, 9000, 8500, 8750},
		{1501, quota, 9000, 8999, 9000},
		{1600, quota, 2, 0, 1},
		{1501, 0, 9000, 1000, 0},
		{1501, -1, 9000, 1000, 0},
	} {
		if got := relief(c.size, c.quota, c.revision, c.compacted); got != c.want {
			t.Errorf("%+v: %d", c, got)
		}
	}
}

// TestDue checks that periodic compaction removes history older than the period but keeps the
// minimum number of revisions. Compaction by revision keeps the configured number of revisions.
func TestDue(t *testing.T) {
	periodic := Compaction{Mode: "periodic", Period: time.Hour}
	least := periodic
	least.Revisions = 500
	for _, c := range []struct {
		cfg  Compaction
		want [12]int64 // the results at revisions 100, 200, and so on
	}{
		{periodic, [12]int64{10: 100, 11: 200}},
		{least, [12]int64{10: 100, 11: 200}},
		{Compaction{Mode: "revision", Revisions: 1000}, [12]int64{
			-900, -800, -700, -600, -500, -400, -300, -200, -100, 0, 100, 200,
		}},
	} {
		a := &compactor{cfg: c.cfg}
		for i, want := range c.want {
			if got := a.due(int64(i+1) * 100); got != want {
				t.Errorf("%+v: look %d: %d, want %d", c.cfg, i, got, want)
			}
		}
	}
	a := &compactor{cfg: least, seen: make([]int64, 10)}
	if got := a.due(700); got != 0 {
		t.Errorf("%d, but the newest 500 are kept", got)
	}
	a.seen = []int64{650, 650, 650, 650, 650, 650, 650, 650, 650, 650}
	if got := a.due(700); got != 200 {
		t.Errorf("%d, but the newest 500 are kept", got)
	}
	for _, off := range []Compaction{
		{Mode: "periodic", Revisions: 5}, {Mode: "revision", Period: time.Hour},
	} {
		if off.on() {
			t.Errorf("%+v compacts", off)
		}
	}
}

// TestLiftAfterRoom checks that the alarm is cleared once there has been space for a while. Until
// then it is left for an operator, or a program written for etcd, to clear.
func TestLiftAfterRoom(t *testing.T) {
	now := time.Now()
	a := &compactor{needed: now}
	for i, c := range []struct {
		after time.Duration
		room  bool
		want  bool
	}{
		{liftAfter - 1, true, false},
		{1, true, true},
		{time.Hour, false, false},
		{1, true, false},
		{liftAfter - 2, true, false},
		{1, true, true},
	} {
		now = now.Add(c.after)
		if got := a.needless(c.room, now); got != c.want {
			t.Errorf("step %d: %v", i, got)
		}
	}
}

// TestAbsentMemberLogged checks that an unresponsive member that keeps the alarm raised is logged
// once, after a delay.
func TestAbsentMemberLogged(t *testing.T) { virtual.Test(t, testNameAway) }

func testNameAway(t *testing.T) {
	r := run(t, testConfig(t.TempDir()))
	alarm := &fsm.SetAlarm{Alarm: fsm.Alarm{Member: 0x4d, Kind: fsm.NoSpace}}
	if _, err := r.node.ProposeOwn(t.Context(), alarm); err != nil {
		t.Fatal(err)
	}
	var log harness.Log
	a := &compactor{node: r.node, log: slog.New(slog.NewTextHandler(&log, nil))}
	now := time.Now()
	a.warnAbsent(now)
	a.warnAbsent(now.Add(absentAfter - 1))
	if log.Contains("4d") {
		t.Error("it is named at once")
	}
	a.warnAbsent(now.Add(absentAfter))
	a.warnAbsent(now.Add(2 * absentAfter))
	if log.Count("member=4d") != 1 {
		t.Errorf("it is named %d times", log.Count("member=4d"))
	}
	alarm.Off = true
	if _, err := r.node.ProposeOwn(t.Context(), alarm); err != nil {
		t.Fatal(err)
	}
	if a.warnAbsent(now); len(a.away) > 0 {
		t.Error("it is remembered")
	}
}
