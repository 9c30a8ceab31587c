// Package logger keeps the log of a process from blocking or flooding anything: lines wait in a
// bounded queue for their reader, and each place that logs has a rate limit.
package logger

import (
	"bytes"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// maxQueued is how many bytes may wait for a reader. As many again may be in a blocked write.
const maxQueued = 1 << 20

// Queue is a writer that neither blocks nor fails. While lines wait, a goroutine writes them. Lines
// that do not fit while it is blocked are dropped and counted. Each Write must be whole lines.
type Queue struct {
	to io.Writer
	// report is called with the number of dropped lines once writing continues.
	report func(lines uint64)
	total  atomic.Uint64 // lines dropped since the start

	mu      sync.Mutex    // guards the following fields
	next    []byte        // lines that wait
	running bool          // the goroutine
	dropped uint64        // lines not reported yet
	idle    chan struct{} // closed when nothing waits; nil if Flush does not wait
	closed  bool
}

// NewQueue returns a queue in front of a writer. report may write to the queue; it may be nil.
func NewQueue(to io.Writer, report func(lines uint64)) *Queue {
	return &Queue{to: to, report: report}
}

// Write implements io.Writer. It never blocks or returns an error.
func (q *Queue) Write(lines []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.next)+len(lines) > maxQueued || q.closed {
		q.dropLocked(lines)
		return len(lines), nil
	}
	q.next = append(q.next, lines...)
	if !q.running {
		q.running = true
		go q.run()
	}
	return len(lines), nil
}

func (q *Queue) dropLocked(lines []byte) {
	n := uint64(bytes.Count(lines, []byte{'\n'}))
	q.dropped += n
	q.total.Add(n)
}

// Dropped returns the number of lines dropped since the start.
func (q *Queue) Dropped() uint64 { return q.total.Load() }

// Flush waits until all lines are written, but no longer than patience. It reports whether they
// were.
func (q *Queue) Flush(patience time.Duration) bool {
	q.mu.Lock()
	if !q.running {
		q.mu.Unlock()
		return true
	}
	if q.idle == nil {
		q.idle = make(chan struct{})
	}
	idle := q.idle
	q.mu.Unlock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-idle:
		return true
	case <-timer.C:
		return false
	}
}

// Close flushes. Later lines are dropped.
func (q *Queue) Close(patience time.Duration) {
	q.Flush(patience)
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
}

// run writes lines until none wait.
func (q *Queue) run() {
	var spare []byte
	for {
		q.mu.Lock()
		if len(q.next) == 0 {
			break
		}
		batch := q.next
		q.next = spare[:0]
		q.mu.Unlock()
		spare = q.pass(batch)
	}
	q.next, q.running = nil, false
	if q.idle != nil {
		close(q.idle)
		q.idle = nil
	}
	q.mu.Unlock()
}

// pass writes a batch, and reports the number of lines dropped before it. It returns the memory for
// reuse.
func (q *Queue) pass(batch []byte) []byte {
	n, err := q.to.Write(batch)
	q.mu.Lock()
	var dropped uint64
	if err != nil { // such as a closed pipe or terminal, or a full disk
		q.dropLocked(batch[min(n, len(batch)):])
	} else {
		dropped, q.dropped = q.dropped, 0
	}
	q.mu.Unlock()
	if dropped > 0 && q.report != nil {
		q.report(dropped)
	}
	return batch
}
