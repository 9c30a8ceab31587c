package compare

import (
	"context"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"leasehold.dev/internal/load"
)

// ServeCeiling serves the ceiling on an address until ctx ends. If log is not empty, every write is
// synced to that file before it is answered.
func ServeCeiling(ctx context.Context, addr, log string) error {
	if log == "" {
		return load.ServeCeiling(ctx, addr, nil)
	}
	l, err := createSyncedLog(log)
	if err != nil {
		return err
	}
	defer l.file.Close()
	return load.ServeCeiling(ctx, addr, l.append)
}

// logSize is the size of a syncedLog's file, which is used as a ring buffer.
const logSize = 64 << 20

// syncedLog is a file that makes requests durable. Requests that arrive during a sync share the
// next sync. The file is fully sized and allocated before the first request, so a sync writes only
// data.
type syncedLog struct {
	file *os.File

	mu      sync.Mutex
	pending []byte
	number  int // number of the batch in pending

	turn   sync.Mutex // held during a write and sync
	offset int64
	synced int // number of the last synced batch
}

func createSyncedLog(path string) (*syncedLog, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	zeros := make([]byte, 1<<20)
	for range logSize / len(zeros) {
		if _, err := f.Write(zeros); err != nil {
			return nil, err
		}
	}
	return &syncedLog{file: f, number: 1}, f.Sync()
}

// append blocks until a request is durable. It is safe for concurrent use.
func (l *syncedLog) append(request []byte) error {
	l.mu.Lock()
	l.pending = append(l.pending, request...)
	mine := l.number
	l.mu.Unlock()

	l.turn.Lock()
	defer l.turn.Unlock()
	if l.synced >= mine {
		return nil // another goroutine synced this batch
	}
	l.mu.Lock()
	batch := l.pending
	l.pending = nil
	l.number++
	l.mu.Unlock()
	if l.offset+int64(len(batch)) > logSize {
		l.offset = 0
	}
	if _, err := l.file.WriteAt(batch, l.offset); err != nil {
		return err
	}
	if err := unix.Fdatasync(int(l.file.Fd())); err != nil {
		return err
	}
	l.offset += int64(len(batch))
	l.synced = mine
	return nil
}
