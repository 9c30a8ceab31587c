package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"gopkg.in/natefinch/lumberjack.v2"
)

// errUnwritten means that a record could not be written and that its call must not proceed.
var errUnwritten = errors.New("audit: the audit log cannot be written")

// Unless a call waits for its record, records are written in batches: once batchBytes have
// accumulated, or after batchTime. If the disk is slow, at most maxWaiting bytes can wait.
const (
	batchBytes = 64 << 10
	batchTime  = 100 * time.Millisecond
	maxWaiting = 16 << 20
	maxSpare   = 4 * batchBytes // maximum size of a batch whose memory is reused for the next batch
)

// hungTime is how long a write can take before the disk is considered broken. The disk counts as
// broken until that write ends.
const hungTime = 5 * time.Second

// Log writes records. Its methods are safe for concurrent use.
type Log struct {
	to   io.WriteCloser
	stop bool

	mu      sync.Mutex // guards the fields below
	next    *batch
	writing *batch // batch being written, or nil
	spare   []byte // buffer of the last batch written, reused for the next batch
	running bool   // the writing goroutine is running
	broken  bool   // the last write failed or is hung
	hung    bool   // a write has been in progress for longer than hungTime

	// the last write might have ended in the middle of a line; used only by the writing goroutine
	torn bool
	full chan struct{} // capacity 1: there is a batch to write

	written, dropped prometheus.Counter
}

// batch is a group of records that are written together.
type batch struct {
	text  []byte
	count int
	done  chan struct{} // closed when the batch has been written
	err   error         // result of the write, set before done is closed
}

func newBatch(memory []byte) *batch { return &batch{text: memory, done: make(chan struct{})} }

// Open returns a log. It opens the file, but does not write to it yet.
func Open(o Options) (*Log, error) {
	l := &Log{stop: o.WhenFull == stop, next: newBatch(nil), full: make(chan struct{}, 1)}
	l.written, l.dropped = counter("records_total", "Records written to the audit log."),
		counter("dropped_total", "Records that could not be written to the audit log.")
	switch o.File {
	case "stdout":
		l.to = unclosed{os.Stdout}
	case "stderr":
		l.to = unclosed{os.Stderr}
	default:
		// The library does not create the file until the first write. So check now that it will be
		// able to.
		f, err := os.OpenFile(filepath.Clean(o.File), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return nil, fmt.Errorf("audit: %w", err)
		}
		if err := f.Close(); err != nil {
			return nil, fmt.Errorf("audit: %w", err)
		}
		l.torn = endsInsideLine(o.File)
		l.to = &rotated{lumberjack.Logger{
			Filename: o.File, MaxSize: o.MaxMegabytes, MaxBackups: o.MaxFiles,
		}}
	}
	return l, nil
}

// endsInsideLine reports whether the last line of a file is incomplete, for example because the
// machine failed during a write. A file that cannot be read is considered complete.
func endsInsideLine(file string) bool {
	info, err := os.Stat(file)
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return false
	}
	f, err := os.Open(filepath.Clean(file))
	if err != nil {
		return false
	}
	defer f.Close() // opened only for reading
	var last [1]byte
	_, err = f.ReadAt(last[:], info.Size()-1)
	return err == nil && last[0] != '\n'
}

// rotated is a log file that, unlike lumberjack's, accepts writes larger than its maximum size.
// Lumberjack names each old file after the current millisecond. If two files got the same name,
// only the later one would survive, so large writes are delayed.
type rotated struct{ lumberjack.Logger }

// Write writes complete lines, split into parts that each fit in one file. Every record fits in one
// file; a longer one would be split across two.
func (r *rotated) Write(text []byte) (n int, err error) {
	for most := max(r.MaxSize, 1) << 20; err == nil && n < len(text); {
		part := text[n:min(len(text), n+most)]
		if n+len(part) < len(text) {
			if at := bytes.LastIndexByte(part, '\n'); at >= 0 {
				part = part[:at+1]
			}
		}
		if len(part) > batchBytes {
			time.Sleep(time.Millisecond)
		}
		var k int
		k, err = r.Logger.Write(part)
		n += k
	}
	return n, err
}

// unclosed is one of the process's standard streams. It is never closed.
type unclosed struct{ io.Writer }

// Close implements io.Closer.
func (unclosed) Close() error { return nil }

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: "leasehold", Subsystem: "audit", Name: name, Help: help,
	})
}

// Collectors returns the log's metrics.
func (l *Log) Collectors() []prometheus.Collector {
	return []prometheus.Collector{l.written, l.dropped}
}

// Ready returns an error if records cannot be written and calls must not proceed without them.
// After a failure, it retries once.
func (l *Log) Ready() error {
	if !l.stop {
		return nil
	}
	l.mu.Lock()
	broken, hung := l.broken, l.hung
	l.mu.Unlock()
	switch {
	case !broken:
		return nil
	case hung:
		return errUnwritten
	}
	return l.Record(&Entry{Time: time.Now(), Event: "resumed"})
}

// Record adds a record. It returns errUnwritten if the call must not proceed, and nil otherwise.
func (l *Log) Record(e *Entry) error {
	var memory [512]byte
	line := e.append(memory[:0])
	l.mu.Lock()
	b := l.next
	if len(b.text)+len(line) > maxWaiting || l.hung && l.stop {
		l.mu.Unlock()
		l.dropped.Inc()
		if l.stop {
			return errUnwritten
		}
		return nil
	}
	b.text = append(b.text, line...)
	b.count++
	enough := len(b.text) >= batchBytes
	l.mu.Unlock()
	if l.stop {
		return l.flush(b)
	}
	if enough {
		select {
		case l.full <- struct{}{}:
		default:
		}
	}
	return nil
}

// Flush writes all waiting records, and waits for a write in progress. If records cannot be
// written, it drops them and returns errUnwritten.
func (l *Log) Flush() error {
	l.mu.Lock()
	b := l.next
	if b.count == 0 {
		b = l.writing
	}
	l.mu.Unlock()
	if b == nil {
		return nil
	}
	return l.flush(b)
}

// flush has a batch written and returns the result. The batch must contain a record. It does not
// wait for a hung disk.
func (l *Log) flush(b *batch) error {
	l.mu.Lock()
	if !l.running {
		l.running = true
		go l.write()
	}
	l.mu.Unlock()
	late := time.NewTimer(hungTime)
	defer late.Stop()
	select {
	case <-b.done:
		return b.err
	case <-late.C:
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running {
		l.broken, l.hung = true, true
	}
	return fmt.Errorf("%w: no response from the disk for %v", errUnwritten, hungTime)
}

// write writes batches until none are left.
func (l *Log) write() {
	l.mu.Lock()
	for l.next.count > 0 {
		b := l.next
		l.next, l.writing, l.spare = newBatch(l.spare[:0]), b, nil
		l.mu.Unlock()
		l.writeBatch(b)
		l.mu.Lock()
	}
	l.writing, l.running = nil, false
	l.mu.Unlock()
}

func (l *Log) writeBatch(b *batch) {
	defer close(b.done)
	text := b.text
	if l.torn {
		text = append([]byte{'\n'}, text...)
	}
	n, err := l.to.Write(text)
	l.torn = err != nil && (l.torn || n > 0)
	l.mu.Lock()
	l.broken, l.hung = err != nil, false
	if cap(b.text) <= maxSpare {
		l.spare = b.text
	}
	l.mu.Unlock()
	b.text = nil
	if err != nil {
		// Some complete lines might have been written. But it is safer to count too many as
		// dropped.
		l.dropped.Add(float64(b.count))
		b.err = fmt.Errorf("%w: %w", errUnwritten, err)
		return
	}
	l.written.Add(float64(b.count))
}

// Run writes records in batches until ctx ends. Then it writes the remaining records.
func (l *Log) Run(ctx context.Context, failed func(error)) {
	tick := time.NewTicker(batchTime)
	defer tick.Stop()
	ok := true
	for ctx.Err() == nil {
		select {
		case <-tick.C:
		case <-l.full:
		case <-ctx.Done():
		}
		err := l.Flush()
		if err != nil && ok {
			failed(err)
		}
		ok = err == nil
	}
}

// Close closes the file, unless the disk is hung.
func (l *Log) Close() error {
	err := l.Flush()
	l.mu.Lock()
	hung := l.hung
	l.mu.Unlock()
	if hung {
		return err
	}
	return errors.Join(err, l.to.Close())
}
