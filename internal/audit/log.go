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

// errUnwritten means that a record could not be written, so that its call is not to go on.
var errUnwritten = errors.New("audit: the audit log cannot be written")

// While nothing must wait for them, records are written together, when there are so many bytes of
// them or after so long. So many bytes wait at most, while the disk is slow.
const (
	batchBytes = 64 << 10
	batchTime  = 100 * time.Millisecond
	maxWaiting = 16 << 20
	maxSpare   = 4 * batchBytes // of the memory of a batch, that the next one takes
)

// hungTime is how long a write may take. After it the disk counts as broken until the write ends.
const hungTime = 5 * time.Second

// Log writes records. Its methods may be called from several goroutines.
type Log struct {
	to   io.WriteCloser
	stop bool

	mu      sync.Mutex // guards what follows
	next    *batch
	writing *batch // the one that is being written, or nil
	spare   []byte // of a batch that was written, for the next one
	running bool   // the goroutine that writes
	broken  bool   // the last write failed, or hangs
	hung    bool   // the write has taken longer than hungTime

	torn bool          // what was written last may be half a line; the writing goroutine's
	full chan struct{} // capacity 1: there is a batch

	written, dropped prometheus.Counter
}

// batch is records that are written together.
type batch struct {
	text  []byte
	count int
	done  chan struct{} // closed when it is written
	err   error         // of the write, set before
}

func newBatch(memory []byte) *batch { return &batch{text: memory, done: make(chan struct{})} }

// Open returns a log. It writes nothing yet, but opens the file.
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
		// The library makes a file when it writes first. Whether it can is to be known now.
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

// endsInsideLine reports whether the last line of a file is not whole, as after a machine that
// failed while it was written. One that cannot be read is taken for whole.
func endsInsideLine(file string) bool {
	info, err := os.Stat(file)
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return false
	}
	f, err := os.Open(filepath.Clean(file))
	if err != nil {
		return false
	}
	defer f.Close() // it was only read
	var last [1]byte
	_, err = f.ReadAt(last[:], info.Size()-1)
	return err == nil && last[0] != '\n'
}

// rotated is a file that takes more at once than it may hold: lumberjack refuses that. It names old
// files by the millisecond, and of two with one name only the later stays: so what is large waits.
type rotated struct{ lumberjack.Logger }

// Write writes whole lines that are no longer together than a file may be. No record is longer;
// if one were, two files would have a part of it each.
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

// unclosed is a stream of the process.
type unclosed struct{ io.Writer }

// Close implements io.Closer.
func (unclosed) Close() error { return nil }

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: "leasehold", Subsystem: "audit", Name: name, Help: help,
	})
}

// Collectors are the metrics of the log.
func (l *Log) Collectors() []prometheus.Collector {
	return []prometheus.Collector{l.written, l.dropped}
}

// Ready returns an error if records cannot be written, and calls are not to go on without. After a
// failure it tries once more.
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

// Record takes a record. If it is to stop calls its error is errUnwritten, and else nil.
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

// Flush writes what waits, and waits for a write that is under way. What cannot be written is
// dropped; then its error is errUnwritten.
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

// flush returns what came of the write of a batch, which has a record. It does not wait for a disk
// that hangs.
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
	return fmt.Errorf("%w: no answer from the disk for %v", errUnwritten, hungTime)
}

// write writes batches until none waits.
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
		// Whole lines of it may be there: to count too many is the safe mistake.
		l.dropped.Add(float64(b.count))
		b.err = fmt.Errorf("%w: %w", errUnwritten, err)
		return
	}
	l.written.Add(float64(b.count))
}

// Run writes records together until ctx ends, and then those that are left.
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

// Close closes the file, unless the disk hangs.
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
