package server

import (
	"testing"
	"time"
)

// Who was answered in the core's last step has his answer, though the core has stopped when
// he looks.
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
