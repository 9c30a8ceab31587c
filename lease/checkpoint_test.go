package lease

import (
	"errors"
	"testing"
)

// silenced returns a primary with one lease. The lease has been checkpointed as silent and reported
// silent a second time.
func silenced(t *testing.T) (*Lessor, Info) {
	t.Helper()
	l := New(Config{Untended: 250})
	l.Promote(0)
	l.Advance(1_000_000) // a repeatedly silent lease is reported at the usual pace
	info := mustGrant(t, l, Terms{ID: 1, TTL: 10_000, LockDelay: 20_000})
	l.Advance(1_000_300)
	l.Checkpoint(l.Silent(10))
	l.Advance(1_008_000)
	if list := l.Silent(10); len(list) != 1 {
		t.Fatalf("silent are %v", list)
	}
	return l, info
}

// TestCheckpointOfAnotherIncarnation applies a checkpoint of another incarnation, and an invalid
// one, while a checkpoint is pending. The pending checkpoint stays pending, so the lease is not yet
// due.
func TestCheckpointOfAnotherIncarnation(t *testing.T) {
	for name, change := range map[string]func(*Checkpoint){
		"another token":      func(c *Checkpoint) { c.Token-- },
		"negative remaining": func(c *Checkpoint) { c.Remaining = -1 },
	} {
		l, info := silenced(t)
		before, _ := l.Lookup(1)
		c := Checkpoint{ID: 1, Token: info.Token, Stamp: info.Stamp}
		change(&c)
		l.Checkpoint([]Checkpoint{c})
		if after, _ := l.Lookup(1); after.Remaining != before.Remaining {
			t.Errorf("%s: %d ms remain, want %d", name, after.Remaining, before.Remaining)
		}
		l.Advance(1_020_000)
		if due := l.Due(10); len(due) > 0 {
			t.Errorf("%s: due is %v while a checkpoint is under way", name, due)
		}
		if err := l.CheckInvariants(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestClearIgnoresStamp checks that clearing a checkpoint ignores the stamp.
func TestClearIgnoresStamp(t *testing.T) {
	l, info := silenced(t)
	l.Checkpoint([]Checkpoint{{ID: 1, Token: info.Token, Stamp: info.Stamp + 5}})
	if after, _ := l.Lookup(1); after.Remaining != 0 {
		t.Errorf("%d ms remain", after.Remaining)
	}
}

// TestSilentUntil checks that a silent lease ends when its checkpointed time has passed on this
// member's clock. After a recovery, that time counts from the recovery.
func TestSilentUntil(t *testing.T) {
	l := New(Config{})
	info := mustGrant(t, l, Terms{ID: 1, TTL: 10_000})
	l.Advance(50)
	if at, ok := l.SilentUntil(1); ok || at != 0 {
		t.Errorf("a lease that is not silent is so until %d", at)
	}
	l.Checkpoint([]Checkpoint{{ID: 1, Token: info.Token, Remaining: 300}})
	l.Advance(60)
	if at, ok := l.SilentUntil(1); !ok || at != 351 {
		t.Errorf("it is silent until %d, %v", at, ok)
	}
	view := l.View()
	state := view.State()
	for i := range view.All() {
		state.Leases = append(state.Leases, i)
	}
	later := New(Config{})
	if err := later.Recover(state); err != nil {
		t.Fatal(err)
	}
	later.Advance(7)
	if at, ok := later.SilentUntil(1); !ok || at != 308 {
		t.Errorf("it was recovered, and is silent until %d, %v", at, ok)
	}
}

// TestLockDelayBounds checks that a lock delay can be as long as the maximum TTL, but no longer.
func TestLockDelayBounds(t *testing.T) {
	l := New(Config{MaxTTL: 5000})
	mustGrant(t, l, Terms{ID: 1, TTL: 1000, LockDelay: 5000})
	var bad *TTLError
	for _, delay := range []TTL{-1, 5001} {
		if _, err := l.Grant(Terms{ID: 2, TTL: 1000, LockDelay: delay}); !errors.As(err, &bad) {
			t.Errorf("a lock delay of %d ms: %v", delay, err)
		}
	}
}
