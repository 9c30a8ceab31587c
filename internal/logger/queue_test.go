package logger

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// pipe is a writer that fails, or blocks while nothing reads from it.
type pipe struct {
	mu    sync.Mutex // guards the following fields
	text  bytes.Buffer
	err   error
	write func() // called by each Write unless nil
}

func (p *pipe) Write(b []byte) (int, error) {
	if p.write != nil {
		p.write()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return 0, p.err
	}
	return p.text.Write(b)
}

// TestReaderStopped checks that a stopped reader does not block writers, and that lost lines are
// counted and reported (T43).
func TestReaderStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocked := make(chan struct{})
		to := &pipe{write: func() { <-blocked }}
		var reported uint64
		q := NewQueue(to, func(lines uint64) { reported += lines })
		line := []byte(strings.Repeat("x", 1023) + "\n")
		const written = 4 * maxQueued / 1024
		for range written {
			if n, err := q.Write(line); n != len(line) || err != nil {
				t.Fatal(n, err)
			}
		}
		if q.Flush(time.Second) {
			t.Error("flushed although nothing reads")
		}
		if q.Dropped() == 0 {
			t.Error("nothing is dropped")
		}
		close(blocked)
		if !q.Flush(time.Second) {
			t.Error("not flushed although the pipe is read")
		}
		if got := uint64(bytes.Count(to.text.Bytes(), line)) + q.Dropped(); got != written {
			t.Errorf("%d lines written and dropped, want %d", got, written)
		}
		if reported != q.Dropped() {
			t.Errorf("%d reported of %d dropped", reported, q.Dropped())
		}
		q.Close(time.Second)
	})
}

// TestCloseIsBounded checks that a process can end even if nothing reads its log.
func TestCloseIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocked := make(chan struct{})
		q := NewQueue(&pipe{write: func() { <-blocked }}, nil)
		_, _ = q.Write([]byte("last\n"))
		began := time.Now()
		q.Close(time.Second)
		if took := time.Since(began); took != time.Second {
			t.Errorf("closed after %v", took)
		}
		close(blocked)
	})
}

// TestWriteFails checks that lines lost because a pipe is closed are counted, and that later lines
// arrive once it works again.
func TestWriteFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &pipe{err: errors.New("broken pipe")}
		var q *Queue
		q = NewQueue(to, func(lines uint64) { fmt.Fprintf(q, "%d dropped\n", lines) })
		_, _ = q.Write([]byte("a\nb\n"))
		q.Flush(time.Second)
		to.mu.Lock()
		to.err = nil
		to.mu.Unlock()
		_, _ = q.Write([]byte("c\n"))
		q.Close(time.Second)
		if got := to.text.String(); got != "c\n2 dropped\n" {
			t.Errorf("%q", got)
		}
		_, _ = q.Write([]byte("d\n"))
		if q.Dropped() != 3 {
			t.Errorf("%d dropped", q.Dropped())
		}
	})
}
