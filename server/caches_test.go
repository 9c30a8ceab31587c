package server

import (
	"fmt"
	"slices"
	"testing"

	"leasehold.dev/internal/replica"
	"leasehold.dev/lease"
)

// heardCache is a native.Cache that takes note of what it is told.
type heardCache struct{ heard []string }

func (c *heardCache) Opened(term uint64, err error) {
	c.heard = append(c.heard, fmt.Sprintf("opened %d %v", term, err))
}

func (c *heardCache) Invalidated(i *replica.Invalidation) {
	c.heard = append(c.heard, fmt.Sprintf("drop %d", i.Seq))
}

func (c *heardCache) Reopen(term uint64) {
	c.heard = append(c.heard, fmt.Sprintf("reopen %d", term))
}

// TestOpenCaches: what a cache has to be told goes where it was opened last, and it is opened
// anew, once, when another leads than the one who knows it.
func TestOpenCaches(t *testing.T) {
	old, last, other := &heardCache{}, &heardCache{}, &heardCache{}
	c := openCaches{7: {to: last}, 8: {to: other}}
	c.tell(replica.Output{
		Opened: []replica.OpenCache{
			{ID: 7, Owner: old, Term: 3}, // of the stream before
			{ID: 7, Owner: last, Term: 3},
			{ID: 8, Owner: other, Err: lease.ErrNotFound},
		},
		Invalidations: []replica.Invalidation{{ID: 7, Seq: 1}, {ID: 8, Seq: 2}, {ID: 9, Seq: 3}},
	})
	if len(c) != 1 {
		t.Errorf("%d caches are open", len(c))
	}
	for _, s := range []replica.Status{
		{Term: 3, Leader: 1}, {Term: 4}, {Term: 4, Leader: 2}, {Term: 5, Leader: 1},
	} {
		c.follow(s)
	}
	for _, x := range []struct {
		to   *heardCache
		want []string
	}{
		{old, []string{"opened 3 <nil>"}},
		{last, []string{"opened 3 <nil>", "drop 1", "reopen 4"}},
		{other, []string{"opened 0 " + lease.ErrNotFound.Error()}},
	} {
		if !slices.Equal(x.to.heard, x.want) {
			t.Errorf("heard %q, want %q", x.to.heard, x.want)
		}
	}
}
