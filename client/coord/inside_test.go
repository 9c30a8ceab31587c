package coord_test

import (
	"context"
	"testing"
	"time"

	"leasehold.dev/client/coord"
)

// TestGivenUpInside: what runs under a lock, leads, or is the primary may give that up by the
// context that it has, which ends then, and nobody takes that for a failure.
func TestGivenUpInside(t *testing.T) {
	t.Parallel()
	members := newCluster(t, 1)
	ctx := ask(t)
	c := members.connect(t)
	s := session(t, c)
	for range 10 { // the context and the answer race
		err := coord.NewMutex(s, "in").Do(ctx,
			func(during context.Context, held *coord.Held) error {
				// It is told by its own context, and by one of its own with less time.
				less, cancel := context.WithTimeout(during, time.Minute)
				defer cancel()
				err := held.Unlock(less)
				if during.Err() == nil {
					<-during.Done()
				}
				return err
			})
		if err != nil {
			t.Fatalf("unlocked inside: %v", err)
		}
	}
	heir := session(t, c)
	var waits <-chan answer[*coord.Leading]
	err := coord.NewElection(s, "in").Lead(ctx, coord.Candidate{},
		func(during context.Context, l *coord.Leading) error {
			keys(t, c, "in~candidates/", 0)
			waits = standAs(t, c, heir, "in", coord.Candidate{ID: "heir"})
			return l.HandOver(during, "heir")
		})
	if err != nil {
		t.Fatalf("handed over inside: %v", err)
	}
	wins(t, waits)
	nodes := coord.NewNodes(c, "in/nodes")
	n := must[*coord.Node](t)(nodes.Join(ctx, coord.NodeConfig{ID: "n", TTL: time.Minute}))
	for range 10 {
		err := n.Lead(ctx, func(during context.Context, p *coord.Primacy) error {
			return p.Resign(during)
		})
		if err != nil {
			t.Fatalf("resigned inside: %v", err)
		}
	}
}
