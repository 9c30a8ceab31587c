package shell

import (
	"testing"

	"leasehold.dev/lease"
)

// TestSnapshots checks that a snapshot is due once enough entries have been appended since the last
// one, or once the log is long, unless the log is small compared with the last snapshot. Only one
// snapshot is written at a time. Entries that another member will need are kept in the log.
func TestSnapshots(t *testing.T) {
	s := Snapshots{Count: 100, Tail: 10}
	s.Restored(1000, 0)
	due := func(index, log uint64, want bool) {
		t.Helper()
		if s.Due(index, func() uint64 { return log }) != want {
			t.Errorf("at %d with a log of %d bytes: %v", index, log, !want)
		}
	}
	due(1099, 1000, false)
	due(1100, 1000, true)
	if keep := s.Begin(1100, s.Tail); keep != 1090 {
		t.Errorf("the log is dropped up to %d", keep)
	}
	due(1200, 1000, false)
	s.Ended(1100, 8000, true)
	due(1300, 1999, false)
	due(1350, 1999, false)
	due(1400, 2000, true)
	s.Hold(7, 1250)
	if keep := s.Begin(1400, s.Tail); keep != 1250 {
		t.Errorf("the log is dropped up to %d, but member 7 needs more", keep)
	}
	s.Release(7)
	s.Ended(1400, 0, false)
	due(1500, snapshotLogBytes, true)
	if keep := s.Begin(5, s.Tail); keep != 0 {
		t.Errorf("the log is dropped up to %d", keep)
	}
	s.Ended(1500, 8000, true)
}

// TestSnapshotLooks checks that the length of the log is checked only every 256 entries, or every
// Count entries if Count is smaller.
func TestSnapshotLooks(t *testing.T) {
	for _, c := range []struct {
		count uint64
		looks int
	}{{count: 10_000, looks: 40}, {count: 256, looks: 40}, {count: 100, looks: 102}} {
		s := Snapshots{Count: c.count}
		s.Restored(5, 0)
		looks := 0
		for index := uint64(5); index < 5+256*40+1; index++ {
			s.Due(index, func() uint64 { looks++; return 0 })
		}
		if looks != c.looks {
			t.Errorf("with %d entries between snapshots, %d checks, want %d", c.count, looks, c.looks)
		}
	}
}

// TestSnapshotOfLongLog checks that a long log makes a snapshot due, regardless of its number of
// entries, unless the log is small compared with the last snapshot.
func TestSnapshotOfLongLog(t *testing.T) {
	for _, c := range []struct {
		last, log uint64
		due       bool
	}{
		{last: 0, log: snapshotLogBytes - 1},
		{last: 0, log: snapshotLogBytes, due: true},
		{last: 1 << 30, log: 1<<28 - 1},
		{last: 1 << 30, log: 1 << 28, due: true},
	} {
		s := Snapshots{Count: 10_000}
		s.Begin(1000, 0)
		s.Ended(1000, c.last, true)
		if s.Due(1256, func() uint64 { return c.log }) != c.due {
			t.Errorf("a log of %d bytes after a snapshot of %d: %v", c.log, c.last, !c.due)
		}
	}
}

// TestSnapshotFailed checks that a failed snapshot counts neither as being written nor as the last
// snapshot.
func TestSnapshotFailed(t *testing.T) {
	s := Snapshots{Count: 100}
	s.Begin(1000, 0)
	if !s.Writing() {
		t.Error("not being written")
	}
	if s.Ended(1000, 5000, false); s.Writing() {
		t.Error("still being written")
	}
	if !s.Due(1001, func() uint64 { return 1 }) {
		t.Error("the next one is not due")
	}
}

// TestSnapshotsBeingSent checks that while a snapshot is being sent to a member, the log after that
// snapshot is kept for it. At least the tail is always kept.
func TestSnapshotsBeingSent(t *testing.T) {
	var s Snapshots
	s.Hold(7, 950)
	s.Hold(8, 800)
	s.Hold(9, 990)
	keeps := func(want uint64) {
		t.Helper()
		if got := s.Begin(1000, 100); got != want {
			t.Errorf("the log is dropped up to %d, want %d", got, want)
		}
	}
	keeps(800)
	s.Release(8)
	keeps(900)
}

// TestSnapshotAtRest checks that a log that hardly grows triggers a snapshot at a shorter length.
// However, a small log never triggers one, and snapshots are not written twice within a minute.
func TestSnapshotAtRest(t *testing.T) {
	const mib = 1 << 20
	s := Snapshots{Count: 10_000, Tail: 10}
	s.Restored(1000, 128*mib)
	due := func(now lease.Instant, index, log uint64, want bool) {
		t.Helper()
		if s.DueAtRest(now, index, func() uint64 { return log }) != want {
			t.Errorf("after %d ms at %d with a log of %d bytes: %v", now, index, log, !want)
		}
	}
	due(1_000, 1100, 2*mib, false) // the log may still be growing
	due(5_999, 1100, 2*mib, false) // too early to check
	due(6_000, 1100, 4*mib, false) // the log is still growing
	due(11_000, 1101, 6*mib-1, true)
	s.Begin(1101, 0)
	due(2_000_000, 1102, 6*mib, false) // a snapshot is being written
	s.Ended(1101, mib, true)
	// All of the log counts as growth after a snapshot, even if it was as long before.
	due(80_000, 1102, 9*mib, false)
	due(1_059_575, 1102, 9*mib, false) // too soon after a large snapshot
	due(1_064_575, 1101, 9*mib, false) // nothing applied since the last snapshot
	due(1_064_575, 1102, 9*mib, true)
	s.Begin(1102, 0)
	s.Ended(1102, mib, true)
	due(1_100_000, 1103, mib, false) // the log may still be growing
	due(1_105_000, 1103, mib, false)
	due(1_124_575, 1103, mib, true) // a minute after the last snapshot
	s.Begin(1103, 0)
	s.Ended(1103, mib, true)
	due(1_190_000, 1104, mib, false) // the log may still be growing
	due(1_195_000, 1104, mib, true)
	s.Begin(1104, 0)
	s.Ended(1104, mib, false)
	due(1_200_000, 1104, mib, true) // the last snapshot failed
	s.Begin(1104, 0)
	s.Ended(1104, mib, true)
	due(1_300_000, 1105, mib-1, false)
	due(1_305_000, 1105, mib-1, false) // the log is too small
	due(1_310_000, 1105, 9*mib, false)
	due(1_315_000, 1105, 3*mib, true) // the end of the log was replaced by a shorter one
}
