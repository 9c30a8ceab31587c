// Package crashfs is the file system in memory of tests that cut the power: it is copied as a
// crash would leave it, in the middle of whatever is going on.
package crashfs

import (
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// An FS can be cloned while it is written to. Pebble's own cannot: its Link and its ReuseForWrite
// take a lock for reading twice, and hang if CrashClone asks for that lock between.
type FS struct {
	*vfs.MemFS
	links sync.RWMutex
}

// New returns an empty file system.
func New() *FS { return &FS{MemFS: vfs.NewCrashableMem()} }

// Link implements vfs.FS.
func (f *FS) Link(oldname, newname string) error {
	f.links.RLock()
	defer f.links.RUnlock()
	return f.MemFS.Link(oldname, newname)
}

// ReuseForWrite implements vfs.FS.
func (f *FS) ReuseForWrite(
	oldname, newname string, category vfs.DiskWriteCategory,
) (vfs.File, error) {
	f.links.RLock()
	defer f.links.RUnlock()
	return f.MemFS.ReuseForWrite(oldname, newname, category)
}

// CrashClone returns what a crash now would leave.
func (f *FS) CrashClone(cfg vfs.CrashCloneCfg) *vfs.MemFS {
	f.links.Lock()
	defer f.links.Unlock()
	return f.MemFS.CrashClone(cfg)
}
