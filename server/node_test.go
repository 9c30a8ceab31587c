package server

import (
	"errors"
	"testing"
	"time"

	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
)

// A caller that was answered in the core's last step has its answer, though the core has stopped
// when the caller looks.
func TestLastAnswerCounts(t *testing.T) {
	stopped := make(chan struct{})
	close(stopped)
	n := &node{stopped: stopped}
	for range 100 { // a select among what is ready is random
		c := &call{done: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
		c.done <- struct{}{}
		if err := n.wait(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
}

// A member that others say is removed gets no entries any more, so nothing that waits for one
// is answered: it is told so at once, and who asked for just that removal, that it is done.
func TestExpelled(t *testing.T) {
	expelled := make(chan struct{})
	close(expelled)
	n := &node{
		core:   &core{inbox: newInbox(), writer: &writer{}},
		member: 7, expelled: expelled,
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
