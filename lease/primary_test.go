package lease

import "testing"

// What the silence of many leases costs the log: each is reported three times in a TTL of
// 10 s, and 512 share an entry.
func TestCheckpointsOfManySilentLeases(t *testing.T) {
	const many, ttl, perEntry = 100_000, 10_000, 512
	l := New(Config{Untended: 250})
	l.Promote(0, 0)
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
