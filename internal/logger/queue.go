// Package logger prevents the log of a process from blocking or flooding anything. Lines wait in a
// bounded queue for their reader, and each place that logs has a rate limit.
package logger

import (
	"bytes"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// maxQueued is the number of bytes that can wait for a reader. As many again can be in a blocked
// write.
const maxQueued = 1 << 20

// Queue is a writer that neither blocks nor fails. A goroutine writes the waiting lines. If it is
// blocked, lines that do not fit in the queue are dropped and counted. Each Write must consist of
// whole lines.
type Queue struct {
	to io.Writer
	// report is called with the number of dropped lines once writing resumes.
	report func(lines uint64)
	total  atomic.Uint64 // lines dropped since the start

	mu      sync.Mutex    // guards the following fields
	next    []byte        // waiting lines
	running bool          // whether the goroutine is running
	dropped uint64        // number of dropped lines not reported yet
	idle    chan struct{} // closed when no lines are waiting; nil unless Flush is waiting
	closed  bool
}

// NewQueue returns a queue that passes lines to the given writer. report can be nil, and can write
// to the queue.
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

// Flush waits until all lines have been written, but no longer than patience. It reports whether
// all of them were written.
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

// Close calls Flush. From then on, new lines are dropped.
func (q *Queue) Close(patience time.Duration) {
	q.Flush(patience)
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
}

// run writes lines until no more are waiting.
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

// pass writes a batch, and reports the number of lines that were dropped before the batch. It
// returns the batch's memory for reuse.
func (q *Queue) pass(batch []byte) []byte {
	n, err := q.to.Write(batch)
	q.mu.Lock()
	var dropped uint64
	if err != nil { // for example a closed pipe or terminal, or a full disk
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
