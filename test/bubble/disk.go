package bubble

import (
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"leasehold.dev/internal/storage"
	"leasehold.dev/test/crashfs"
	"leasehold.dev/test/virtual"
)

// disk is a file system in memory whose syncs take time, and that loses what was not synced.
type disk struct {
	storage.FS
	mem *crashfs.FS
	on  *virtual.Machine

	// slow is how long a sync of the log takes, at most. It is 0 while the member starts and
	// stops: then a sync is waited for under a lock, and a goroutine that waits for a lock does not
	// let time pass. So it is with all other files.
	slow atomic.Int64
	rush chan struct{} // closed when no sync is to take time any more

	mu  sync.Mutex // guards rng
	rng *rand.Rand
}

func newDisk(mem *crashfs.FS, on *virtual.Machine, rng *rand.Rand) *disk {
	return &disk{FS: mem, mem: mem, on: on, rng: rng, rush: make(chan struct{})}
}

// sync does what it does after a while.
func (d *disk) sync(do func() error) error {
	if most := d.slow.Load(); most > 0 {
		d.mu.Lock()
		t := time.NewTimer(time.Duration(most/2 + d.rng.Int64N(most/2+1)))
		d.mu.Unlock()
		defer t.Stop()
		select {
		case <-t.C:
		case <-d.on.Dead():
		case <-d.rush:
		}
		d.on.Gate()
	}
	return do()
}

// hurry ends the time of slow syncs.
func (d *disk) hurry() {
	d.slow.Store(0)
	close(d.rush)
}

// Create implements storage.FS.
func (d *disk) Create(name string, size int64) (storage.File, error) {
	f, err := d.FS.Create(name, size)
	if err != nil || !strings.HasSuffix(name, ".segment") {
		return f, err
	}
	return &file{f, d}, nil
}

// OpenWrite implements storage.FS. Only the log uses it.
func (d *disk) OpenWrite(name string) (storage.File, error) {
	f, err := d.FS.OpenWrite(name)
	if err != nil {
		return nil, err
	}
	return &file{f, d}, nil
}

type file struct {
	storage.File
	disk *disk
}

// Sync implements storage.File.
func (f *file) Sync() error { return f.disk.sync(f.File.Sync) }

// WriteSync implements storage.File.
func (f *file) WriteSync(b []byte, at int64) error {
	if _, err := f.WriteAt(b, at); err != nil {
		return err
	}
	return f.Sync()
}
