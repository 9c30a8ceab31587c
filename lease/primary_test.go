package lease

import "testing"

// TestManyUntended checks that after a promotion, leases that are not renewed are soon reported
// as silent, unless there are too many for the log.
func TestManyUntended(t *testing.T) {
	l := New(Config{Untended: 250})
	for id := range ID(maxUntended) {
		mustGrant(t, l, Terms{ID: id + 1, TTL: 10_000})
	}
	for _, want := range []int{maxUntended, 0} {
		l.Promote(l.now)
		catchUp(l, l.now+300)
		if n := len(l.Silent(2 * maxUntended)); n != want {
			t.Errorf("of %d leases %d are silent soon, want %d", l.Len(), n, want)
		}
		l.Demote()
		if want > 0 {
			mustGrant(t, l, Terms{ID: maxUntended + 1, TTL: 10_000})
		}
	}
}

// TestCheckpointsOfManySilentLeases checks that each silent lease with a TTL of 10 s is
// checkpointed three times, with 512 checkpoints per entry.
func TestCheckpointsOfManySilentLeases(t *testing.T) {
	const many, ttl, perEntry = 100_000, 10_000, 512
	l := New(Config{Untended: 250})
	l.Promote(0)
	l.Advance(1_000_000)
	for id := range ID(many) {
		mustGrant(t, l, Terms{ID: id + 1, TTL: ttl})
	}
	entries := 0
	for now := l.now; ; now = l.now + 1 {
		if next, ok := l.Next(); ok {
			now = max(now, next)
		}
		l.Advance(now)
		if len(l.Due(1)) > 0 {
			break
		}
		for list := l.Silent(perEntry); len(list) > 0; list = l.Silent(perEntry) {
			entries++
			l.Checkpoint(list)
		}
	}
	if want := 3 * ((many + perEntry - 1) / perEntry); entries != want {
		t.Errorf("%d entries, want %d", entries, want)
	}
}

// TestNearMisses checks that a renewal with less than a quarter of the TTL left counts as a near
// miss.
func TestNearMisses(t *testing.T) {
	l := New(Config{})
	mustGrant(t, l, Terms{ID: 1, TTL: 1000})
	l.Promote(0)
	for _, x := range []struct {
		after Instant
		want  uint64
	}{{0, 0}, {749, 0}, {750, 0}, {751, 1}, {999, 2}, {100, 2}} {
		l.Advance(l.now + x.after)
		if _, err := l.Renew(1, 0); err != nil {
			t.Fatal(err)
		}
		if got := l.NearMisses(); got != x.want {
			t.Errorf("%d ms after the last renewal: %d near misses, not %d", x.after, got, x.want)
		}
	}
	l.Demote()
	if got := l.NearMisses(); got != 0 {
		t.Errorf("%d near misses of a follower", got)
	}
}

// TestFetch checks that Fetch returns the latest end of any lease and, if there are many leases,
// leaves some of them for the next call.
func TestFetch(t *testing.T) {
	l := New(Config{})
	mustGrant(t, l, Terms{ID: 7, TTL: 5000})
	if n, at := l.Fetch([]ID{7}); n != 1 || at != 0 {
		t.Errorf("on a follower of %d one ends at %d", n, at)
	}
	l.Promote(10)
	ids := []ID{7, 0}
	for id := range ID(98) {
		ids = append(ids, 1000-id)
		mustGrant(t, l, Terms{ID: 1000 - id, TTL: 1000 + TTL(id)})
	}
	for _, c := range []struct {
		ids  []ID
		n    int
		want Instant
	}{
		{ids, 64, 5011},
		{ids[1:], 64, 1011 + 62},
		{ids[1:65], 64, 1011 + 62},
		{ids[1:64], 63, 1011 + 61},
		{ids[1:3], 2, 1011},
		{ids[1:2], 1, 0},
		{nil, 0, 0},
	} {
		if n, at := l.Fetch(c.ids); n != c.n || at != c.want {
			t.Errorf("of %d of %d the last one ends at %d, want %d of %d",
				n, len(c.ids), at, c.want, c.n)
		}
	}
}
