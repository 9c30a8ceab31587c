package cli

import (
	"bytes"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// blockedWriter blocks until it is released.
type blockedWriter struct {
	released chan struct{}
	text     bytes.Buffer
}

func (w *blockedWriter) Write(p []byte) (int, error) {
	<-w.released
	return w.text.Write(p)
}

// Goal: a standard error that nothing reads does not stop a command that holds something (T43).
// Method: messages to a blocked writer, in virtual time.
func TestMessagesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &blockedWriter{released: make(chan struct{})}
		a := &app{Process: Process{Stderr: w}}
		began := time.Now()
		for range 100 {
			a.complain("a message\n")
		}
		if took := time.Since(began); took != messageTime {
			t.Errorf("100 messages took %v", took)
		}
		close(w.released)
		synctest.Wait()
		a.complain("the last\n")
		a.endMessages()
		if got := bytes.Count(w.text.Bytes(), []byte{'\n'}); got != 101 {
			t.Errorf("%d lines", got)
		}
	})
}

// Goal: a command does not get an output whose reader is gone, which would end it when it prints.
func TestOutputWithoutReader(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if withReader(w) == nil {
		t.Error("a pipe with a reader is replaced")
	}
	_ = r.Close()
	if withReader(w) != nil {
		t.Error("a pipe without a reader is used")
	}
}
