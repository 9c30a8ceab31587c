package shell

import "testing"

// TestSnapshots: a snapshot is due when there are enough entries since the last one, and the log
// is not small beside that, or when the log is long. There is one at a time. The log that a
// member will need is kept.
func TestSnapshots(t *testing.T) {
	s := Snapshots{Count: 100, Tail: 10}
	s.Restored(1000)
	due := func(index, log uint64, want bool) {
		t.Helper()
		if s.Due(index, func() uint64 { return log }) != want {
			t.Errorf("at %d with a log of %d bytes: %v", index, log, !want)
		}
	}
	due(1099, 1000, false)
	due(1100, 1000, true)
	if keep := s.Begin(1100, s.Tail); keep != 1090 {
		t.Errorf("the log goes up to %d", keep)
	}
	due(1200, 1000, false)
	s.Ended(1100, 8000, true)
	due(1300, 1999, false)
	due(1350, 1999, false)
	due(1400, 2000, true)
	s.Hold(7, 1250)
	if keep := s.Begin(1400, s.Tail); keep != 1250 {
		t.Errorf("the log goes up to %d, member 7 needs more", keep)
	}
	s.Release(7)
	s.Ended(1400, 0, false)
	due(1500, 64<<20, true)
	if keep := s.Begin(5, s.Tail); keep != 0 {
		t.Errorf("the log goes up to %d", keep)
	}
	s.Ended(1500, 8000, true)
}
