package server

import (
	"errors"
	"testing"
	"time"

	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
)

// TestLastAnswerCounts checks that a call answered in the core's last step returns that answer,
// even if the core has stopped in the meantime.
func TestLastAnswerCounts(t *testing.T) {
	stopped := make(chan struct{})
	close(stopped)
	n := &node{core: &core{}, ended: stopped}
	for range 100 { // select chooses randomly among ready channels
		c := &call{done: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
		c.done <- struct{}{}
		if err := n.wait(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
}

// TestExpelled checks that pending calls fail immediately at a removed member, because it receives
// no more entries. The call that requested its removal succeeds.
func TestExpelled(t *testing.T) {
	expelled := make(chan struct{})
	close(expelled)
	n := &node{
		core:   &core{inbox: newInbox(), writer: &writer{}},
		member: 7, expelled: expelled, ended: expelled,
	}
	n.view.Store(fsm.New(fsm.Config{}).View())
	if _, err := n.Propose(t.Context(), &fsm.RemoveMember{ID: 7}); err != nil {
		t.Errorf("the member's own removal: %v", err)
	}
	for _, c := range []fsm.Command{&fsm.RemoveMember{ID: 8}, &fsm.Put{Key: "k"}} {
		if _, err := n.Propose(t.Context(), c); !errors.Is(err, api.ErrStopped) {
			t.Errorf("%T: %v", c, err)
		}
	}
}
