package replica

import (
	"errors"
	"testing"

	"leasehold.dev/lease"
)

// TestOpenHasOneAnswer checks that each OpenCache gets exactly one answer. The leader's answer has
// a term only if the cache is open. If no leader was found in time, the answer is ErrNoLeader.
func TestOpenHasOneAnswer(t *testing.T) {
	var out output
	c := cacheRelay{opens: []OpenCache{{ID: 1}, {ID: 2}, {ID: 3, born: 5}, {ID: 4, born: 5}}}
	c.fill(&Forward{}, 0, 1)
	c.opens = []OpenCache{{ID: 5, born: 5}, {ID: 6}}
	c.opened(&out, &Reply{Term: 9, Opened: []Opened{
		{Number: 2, Code: codeOf(lease.ErrNotFound)}, {Number: 4}, {Number: 4}, {Number: 99},
	}})
	c.expire(&out, func(born uint64) bool { return born < 5 })
	c.expire(&out, func(born uint64) bool { return born < 5 })
	want := []struct {
		id   lease.ID
		term uint64
		err  error
	}{{2, 0, lease.ErrNotFound}, {4, 9, nil}, {6, 0, ErrNoLeader}, {1, 0, ErrNoLeader}}
	if len(out.Opened) != len(want) || len(c.sent) != 1 || len(c.opens) != 1 {
		t.Fatalf("answered %+v, kept %+v", out.Opened, c)
	}
	for i, w := range want {
		if o := out.Opened[i]; o.ID != w.id || o.Term != w.term || !errors.Is(o.Err, w.err) {
			t.Errorf("answer %d: %+v", i, o)
		}
	}
}
