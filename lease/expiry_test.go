package lease

import (
	"math"
	"testing"
)

// primary returns a primary with one lease of 10 s, renewed at 1,000,000: so late that what is
// silent is reported again at the usual pace.
func primary(t *testing.T) (*Lessor, Info) {
	t.Helper()
	l := New(Config{Untended: 250})
	l.Promote(0)
	l.Advance(1_000_000)
	info := mustGrant(t, l, Terms{ID: 1, TTL: 10_000, LockDelay: 1000})
	if _, err := l.Renew(1, 0); err != nil {
		t.Fatal(err)
	}
	return l, info
}

// silentAt moves the clock, and says whether the lease is reported as silent then.
func silentAt(t *testing.T, l *Lessor, at Instant, want bool) []Checkpoint {
	t.Helper()
	l.Advance(at)
	list := l.Silent(10)
	if (len(list) > 0) != want {
		t.Errorf("at %d silent are %v", at, list)
	}
	return list
}

// TestAbandonTwice: a lease that nobody tends is silent a quarter of a second after that was said
// first.
func TestAbandonTwice(t *testing.T) {
	l, _ := primary(t)
	l.Abandon(1)
	l.Advance(1_000_200)
	l.Abandon(1)
	silentAt(t, l, 1_000_250, false)
	silentAt(t, l, 1_000_251, true)
}

// TestAbandonSilent: a lease that is known to be silent is not reported again because nobody
// tends it.
func TestAbandonSilent(t *testing.T) {
	l, _ := primary(t)
	l.Abandon(1)
	l.Checkpoint(silentAt(t, l, 1_000_300, true))
	l.Abandon(1)
	silentAt(t, l, 1_000_900, false)
}

// TestCheckpointAtPromotion: what is checkpointed just after a promotion is not reported again at
// once.
func TestCheckpointAtPromotion(t *testing.T) {
	l := New(Config{Untended: 250})
	info := mustGrant(t, l, Terms{ID: 1, TTL: 10_000})
	l.Promote(5)
	l.Checkpoint([]Checkpoint{{ID: 1, Token: info.Token, Remaining: 9000}})
	silentAt(t, l, 255, false)
	silentAt(t, l, 256, true)
}

// TestSilenceCountsFromRenewal: a lease is silent so long after its last renewal, whenever the
// entry is applied that clears its checkpoint.
func TestSilenceCountsFromRenewal(t *testing.T) {
	l, info := primary(t)
	l.Abandon(1)
	l.Checkpoint(silentAt(t, l, 1_000_300, true))
	if n, err := l.Renew(1, 0); err != nil || !n.Clear {
		t.Fatalf("%+v, %v", n, err)
	}
	l.Advance(1_002_000)
	l.Checkpoint([]Checkpoint{{ID: 1, Token: info.Token}})
	silentAt(t, l, 1_004_300, false)
	silentAt(t, l, 1_004_301, true)
}

// TestDelayRunsFromTheEnd: a lock delay runs from when the lease ends, even if this member would
// have let that live for longer.
func TestDelayRunsFromTheEnd(t *testing.T) {
	l, info := primary(t)
	if _, ok := l.Expire(Due{ID: 1, Token: info.Token, Stamp: info.Stamp}); !ok {
		t.Fatal("it does not end")
	}
	if at, _ := l.Expiry(1); at != 1_001_001 {
		t.Errorf("a delay of 1000 ms from 1000000 ends at %d", at)
	}
}

// TestDueAgainComesLater: a lease that was due, was renewed and is due again comes after those
// that have been due since before.
func TestDueAgainComesLater(t *testing.T) {
	l := New(Config{})
	l.Promote(0)
	mustGrant(t, l, Terms{ID: 1, TTL: 10})
	mustGrant(t, l, Terms{ID: 2, TTL: 11})
	l.Advance(15)
	if _, err := l.Renew(1, 0); err != nil {
		t.Fatal(err)
	}
	l.Advance(30)
	for _, want := range []ID{2, 1} {
		if due := l.Due(1); len(due) != 1 || due[0].ID != want {
			t.Errorf("due is %v, want lease %d", due, want)
		}
	}
}

// TestTimesAtTheirBounds: the shortest TTL has some silence before it is reported, and the end of
// time is not passed.
func TestTimesAtTheirBounds(t *testing.T) {
	c := Config{}.withDefaults()
	if got := c.silence(4); got != 1 {
		t.Errorf("a lease of 4 ms is silent after %d ms", got)
	}
	for _, ttl := range []TTL{math.MaxInt64 - 6, math.MaxInt64 - 5, math.MaxInt64} {
		if got := Instant(5).after(ttl); got != math.MaxInt64 {
			t.Errorf("%d ms after 5 it is %d", ttl, got)
		}
	}
}

// TestNoSuchName: nobody holds a name that was never granted.
func TestNoSuchName(t *testing.T) {
	l := New(Config{})
	mustGrant(t, l, Terms{ID: 1, TTL: 1000, Name: "n"})
	if info, ok := l.View().ByName("m"); ok {
		t.Errorf("it is held by %+v", info)
	}
	if info, ok := l.View().ByName("n"); !ok || info.ID != 1 {
		t.Errorf("name n is held by %+v, %v", info, ok)
	}
}

// catchUp moves a primary's clock, and has it look at all leases whose time has come by then. It
// returns in how many steps.
func catchUp(l *Lessor, now Instant) (steps int) {
	for l.Advance(now); l.tracker.behind(); l.Advance(now) {
		steps++
	}
	return steps + 1
}
