package bubble

import (
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"leasehold.dev/test/crashfs"
)

// disk is a file system in memory whose syncs take time, and that loses what was not synced.
type disk struct {
	vfs.FS
	mem *crashfs.FS
	on  *machine

	// slow is how long a sync of Pebble's log takes, at most. It is 0 while the member starts and
	// stops: then a sync is waited for under a lock, and a goroutine that waits for a lock does not
	// let time pass. So it is with all other files.
	slow atomic.Int64
	rush chan struct{} // closed when no sync is to take time any more

	mu  sync.Mutex // guards rng
	rng *rand.Rand
}

const diskBytes = 256 << 20

func newDisk(mem *crashfs.FS, on *machine, rng *rand.Rand) *disk {
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
		case <-d.on.dead:
		case <-d.rush:
		}
		d.on.gate()
	}
	return do()
}

// hurry ends the time of slow syncs.
func (d *disk) hurry() {
	d.slow.Store(0)
	close(d.rush)
}

func (d *disk) wrap(name string, f vfs.File, err error) (vfs.File, error) {
	if err != nil || !strings.HasSuffix(name, ".log") {
		return f, err
	}
	return &file{f, d}, nil
}

// Create implements vfs.FS.
func (d *disk) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.Create(name, c)
	return d.wrap(name, f, err)
}

// OpenReadWrite implements vfs.FS.
func (d *disk) OpenReadWrite(
	name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption,
) (vfs.File, error) {
	f, err := d.FS.OpenReadWrite(name, c, o...)
	return d.wrap(name, f, err)
}

// ReuseForWrite implements vfs.FS.
func (d *disk) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := d.FS.ReuseForWrite(from, to, c)
	return d.wrap(to, f, err)
}

// GetDiskUsage implements vfs.FS.
func (*disk) GetDiskUsage(string) (vfs.DiskUsage, error) {
	const half = diskBytes / 2
	return vfs.DiskUsage{AvailBytes: half, TotalBytes: diskBytes, UsedBytes: half}, nil
}

type file struct {
	vfs.File
	disk *disk
}

// Sync implements vfs.File.
func (f *file) Sync() error { return f.disk.sync(f.File.Sync) }

// SyncData implements vfs.File.
func (f *file) SyncData() error { return f.disk.sync(f.File.SyncData) }
