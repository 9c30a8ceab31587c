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

// disk is an in-memory file system with slow syncs. A crash loses unsynced data.
type disk struct {
	storage.FS
	mem *crashfs.FS
	on  *virtual.Machine

	// slow is the maximum duration of a log sync. It is 0 while the member starts and stops,
	// because the member then holds a lock while it waits for syncs, and virtual time does not
	// advance while another goroutine waits for that lock. Syncs of other files are always
	// immediate.
	slow atomic.Int64
	rush chan struct{} // closed when syncs become fast

	mu  sync.Mutex // guards rng
	rng *rand.Rand
}

func newDisk(mem *crashfs.FS, on *virtual.Machine, rng *rand.Rand) *disk {
	return &disk{FS: mem, mem: mem, on: on, rng: rng, rush: make(chan struct{})}
}

// sync calls do after a random delay.
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

// hurry makes all further syncs immediate.
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

// OpenWrite implements storage.FS. Only the log calls it.
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
