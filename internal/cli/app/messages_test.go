package app

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"
)

// blockedWriter blocks every write until it is released.
type blockedWriter struct {
	released chan struct{}
	text     bytes.Buffer
}

func (w *blockedWriter) Write(p []byte) (int, error) {
	<-w.released
	return w.text.Write(p)
}

// TestMessagesNotRead checks that a command that holds a resource does not block when nothing reads
// its standard error (T43).
func TestMessagesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &blockedWriter{released: make(chan struct{})}
		a := &App{Process: Process{Stderr: w}}
		began := time.Now()
		for range 100 {
			a.Complain("a message\n")
		}
		if took := time.Since(began); took != messageTime {
			t.Errorf("100 messages took %v", took)
		}
		close(w.released)
		synctest.Wait()
		a.Complain("the last\n")
		a.EndMessages()
		if got := bytes.Count(w.text.Bytes(), []byte{'\n'}); got != 101 {
			t.Errorf("%d lines", got)
		}
	})
}
