package lease

import (
	"errors"
	"testing"
)

// silenced returns a primary with a lease that was checkpointed as silent and is reported once
// more: that is under way.
func silenced(t *testing.T) (*Lessor, Info) {
	t.Helper()
	l := New(Config{Untended: 250})
	l.Promote(0)
	l.Advance(1_000_000) // what is silent again is reported at the usual pace
	info := mustGrant(t, l, Terms{ID: 1, TTL: 10_000, LockDelay: 20_000})
	l.Advance(1_000_300)
	l.Checkpoint(l.Silent(10))
	l.Advance(1_008_000)
	if list := l.Silent(10); len(list) != 1 {
		t.Fatalf("silent are %v", list)
	}
	return l, info
}

// TestCheckpointOfAnotherIncarnation: a checkpoint of an earlier incarnation of the lease, or one
// that makes no sense, says nothing of the one that is under way: the lease is not decided about
// before the outcome of that is known.
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

// TestTakenBackIsOfItsKind: what takes back an expiry leaves a checkpoint of the lease alone that
// is under way, and the other way round.
func TestTakenBackIsOfItsKind(t *testing.T) {
	l, info := silenced(t)
	l.Reinstate([]Due{{ID: 1, Token: info.Token, Stamp: info.Stamp}})
	l.Advance(1_020_000)
	if due := l.Due(10); len(due) > 0 {
		t.Errorf("due is %v while a checkpoint is under way", due)
	}
	silent := []Checkpoint{{ID: 1, Token: info.Token, Stamp: info.Stamp}}
	l.Unreport(silent)
	if due := l.Due(10); len(due) != 1 {
		t.Errorf("due is %v after the checkpoint was dropped", due)
	}
	l.Unreport(silent)
	if due := l.Due(10); len(due) > 0 {
		t.Errorf("due is %v again while its expiry is under way", due)
	}
	if err := l.CheckInvariants(); err != nil {
		t.Error(err)
	}
}

// TestClearDuringDelay: a renewal that comes too late, when the lease is over and its lock delay
// runs, clears no checkpoint of the delay.
func TestClearDuringDelay(t *testing.T) {
	l, info := silenced(t)
	l.Checkpoint([]Checkpoint{{ID: 1, Token: info.Token, Remaining: 2000}})
	l.Advance(1_020_000)
	due := l.Due(10)
	if len(due) != 1 {
		t.Fatalf("due is %v", due)
	}
	if _, ok := l.Expire(due[0]); !ok {
		t.Fatal("it does not expire")
	}
	l.Advance(1_020_300)
	l.Checkpoint(l.Silent(10))
	l.Advance(1_030_000)
	if list := l.Silent(10); len(list) != 1 {
		t.Fatalf("silent are %v", list)
	}
	before, _ := l.Lookup(1)
	l.Checkpoint([]Checkpoint{{ID: 1, Token: info.Token}})
	if after, _ := l.Lookup(1); !after.Delayed || after.Remaining == 0 ||
		after.Remaining != before.Remaining || after.Stamp != before.Stamp {
		t.Errorf("after the renewal %+v, before %+v", after, before)
	}
	l.Advance(1_050_000)
	if due := l.Due(10); len(due) > 0 {
		t.Errorf("due is %v while a checkpoint is under way", due)
	}
}

// TestClearWhateverTheStamp: what clears a checkpoint does not look at the stamp.
func TestClearWhateverTheStamp(t *testing.T) {
	l, info := silenced(t)
	l.Checkpoint([]Checkpoint{{ID: 1, Token: info.Token, Stamp: info.Stamp + 5}})
	if after, _ := l.Lookup(1); after.Remaining != 0 {
		t.Errorf("%d ms remain", after.Remaining)
	}
}

// TestViewBeforeClear: a picture that was taken before a checkpoint is cleared shows it still.
func TestViewBeforeClear(t *testing.T) {
	l, info := silenced(t)
	before, _ := l.Lookup(1)
	view := l.View()
	l.Checkpoint([]Checkpoint{{ID: 1, Token: info.Token}})
	for seen := range view.All() {
		if !equalInfo(seen, before) {
			t.Errorf("the picture shows %+v, want %+v", seen, before)
		}
	}
}

// TestSilentUntil: what is silent ends when what remained at its checkpoint is over, by this
// member's clock, or where it was recovered, when that is over from now on.
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

// TestLockDelayBounds: a lock delay may be as long as a lease, and no longer.
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
