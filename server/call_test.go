package server

import (
	"context"
	"errors"
	"testing"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/shell"
)

// TestCallGivenUp: a call whose caller gave up is not used again, since the core still holds it and
// answers it some time: that answer would be taken for the one to another request. One that was
// answered before may be.
func TestCallGivenUp(t *testing.T) {
	n := &node{core: &core{inbox: newInbox(), writer: &writer{}}}
	n.view.Store(&fsm.View{})
	ctx, giveUp := context.WithCancel(t.Context())
	giveUp()
	held := make(map[*call]bool) // by the core
	for i := range 100 {
		var err error
		if i%2 == 0 {
			_, err = n.propose(ctx, &fsm.Put{Key: "k"})
		} else {
			err = n.Confirm(ctx)
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		m := n.inbox.take(shell.Mail{})
		var c *call
		if i%2 == 0 {
			c = m.Proposals[0].Owner.(*call)
		} else {
			c = m.Reads[0].Owner.(*call)
		}
		if held[c] {
			t.Fatal("a request has the call of another, which the core will answer")
		}
		held[c] = true
	}
}
