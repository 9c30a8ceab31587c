package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"leasehold.dev/internal/encoding"
)

// These constants are the names in a data directory.
const (
	logDir       = "log"
	lockFile     = "lock"     // in logDir
	identityFile = "identity" // next to logDir
	etcdDir      = "member"   // etcd's directory, in the same place
	tempSuffix   = ".tmp"
)

// Unused reports whether a directory does not exist, or contains no identity, no log and no etcd
// data. To assess any other directory, call Open.
func Unused(dir string) bool {
	for _, name := range []string{identityFile, logDir, etcdDir} {
		if _, err := os.Stat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			return false
		}
	}
	return true
}

// Open opens the data directory, creating it if necessary. It reads the entire log once, so that it
// detects damage now rather than when an entry is needed. If it cannot proceed, it returns
// ErrLocked, ErrCorrupt, encoding.ErrNewer, ErrForeign or ErrNoSpace, with a remedy in the text.
func Open(cfg Config) (*Disk, error) {
	d, err := newDisk(cfg)
	if err == nil {
		if err = classify(d.lockDir()); err == nil {
			if err = d.load(); isFull(err) {
				// Nothing has been acknowledged since Open began. So running out of room for a
				// write does not count as a failure.
				err = fmt.Errorf("%w: %v", ErrNoSpace, err)
			}
			if err = classify(err); err != nil {
				_ = d.release()
			}
		}
	}
	if err != nil {
		return nil, explain(cfg.Dir, err)
	}
	return d, nil
}

// explain adds the directory and advice to an error.
func explain(dir string, err error) error {
	hint := ""
	switch {
	case errors.Is(err, ErrLocked):
		hint = "; stop the other process, or use another directory for this one"
	case errors.Is(err, encoding.ErrNewer):
		hint = "; run the release that wrote it, or a later one"
	case errors.Is(err, ErrForeign):
		hint = "; choose another directory"
	case errors.Is(err, ErrNoSpace):
		hint = "; free some space on the disk, or raise the open-file limit, and restart;" +
			" nothing is lost"
	case errors.Is(err, ErrCorrupt):
		hint = "; do not delete individual files: keep a copy of the directory, check the disk," +
			" then restore a backup, or start this member with an empty directory" +
			" and --join ADDRESS --replace to get the data from the other members"
	}
	return fmt.Errorf("open %s: %w%s", dir, err, hint)
}

func newDisk(cfg Config) (*Disk, error) {
	if cfg.Dir == "" {
		return nil, errors.New("storage: Config.Dir is empty")
	}
	if cfg.FS == nil {
		cfg.FS = OS{}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.TailBytes == 0 {
		cfg.TailBytes = defaultTailBytes
	}
	if cfg.SegmentBytes == 0 {
		cfg.SegmentBytes = SegmentBytes
	}
	cfg.SegmentBytes = max(minSegmentBytes, wholeBlocks(cfg.SegmentBytes))
	d := &Disk{
		cfg: cfg, fs: cfg.FS, logger: cfg.Logger, write: make(turn, 1),
	}
	d.spares = newSpares(&cfg, d.path)
	d.log.tailMax = cfg.TailBytes
	d.log.reset(position{})
	return d, nil
}

// lockDir creates and locks the directory.
func (d *Disk) lockDir() error {
	// Starting with an empty state next to data that the operator expects to be served would be
	// worse than not starting.
	for _, name := range []string{"wal", "snap"} {
		path := filepath.Join(d.cfg.Dir, etcdDir, name)
		if _, err := d.fs.List(path); err == nil {
			return fmt.Errorf("%w: %s belongs to etcd", ErrForeign, path)
		}
	}
	err := d.fs.MkdirAll(d.path(""))
	if err == nil {
		d.lock, err = d.fs.Lock(d.path(lockFile), false)
	}
	if err == nil {
		d.dir, err = d.fs.OpenDir(d.path(""))
		d.spares.dir = d.dir
		if err != nil {
			ignoreClose(d.lock)
		}
	}
	return err
}

// inventory lists the files in a directory, by type.
type inventory struct {
	segments  []uint64
	snapshots []string
	temporary []string
}

func (d *Disk) inventory() (inv inventory, err error) {
	names, err := d.fs.List(d.path(""))
	for _, name := range names {
		number, segment := parseSegmentName(name)
		switch {
		case segment:
			inv.segments = append(inv.segments, number)
		case strings.HasSuffix(name, snapshotSuffix):
			inv.snapshots = append(inv.snapshots, name)
		case strings.HasSuffix(name, tempSuffix):
			inv.temporary = append(inv.temporary, name)
		}
	}
	slices.Sort(inv.segments)
	return inv, err
}

// load reads the directory and makes it durable.
func (d *Disk) load() error {
	inv, err := d.inventory()
	if err == nil {
		err = d.loadIdentity()
	}
	if err != nil {
		return err
	}
	if !d.bootstrapped {
		if err = d.clear(&inv); err == nil {
			d.spares.start()
		}
		return err
	}
	f, err := d.loadAll(inv.segments)
	if err == nil {
		if err = d.repair(f); err != nil {
			f.close()
		}
	}
	if err != nil {
		return err
	}
	d.removeUnused(&inv, f.spares)
	return d.addEmpty()
}

// repair makes the loaded data durable: the last commit, followed by zeros where an unfinished
// write may have left sectors. It writes both even though it has just read exactly these contents.
// After a failed sync, the kernel considers its bytes written, but the disk may have different
// ones.
func (d *Disk) repair(f *found) error {
	current := f.current
	d.seg, d.cursor = current.segment, current.end
	d.left = d.room()
	if current.torn {
		d.logger.Info("storage: dropped an unfinished write", "path", current.image.name, "at", d.at)
	}
	err := syncDir(d.fs, d.cfg.Dir) // Bootstrap may have been interrupted before it did this
	if err == nil {
		err = writeZeros(d.seg.file, d.at, d.seg.size)
	}
	if err == nil {
		err = d.seg.file.Sync()
	}
	if err != nil || f.newest == nil {
		return err
	}
	last := f.newest.last()
	d.settled = len(last[0].payload) == 0
	for _, frame := range last {
		if err := d.put(f.newest.segment, &frame); err != nil {
			return err
		}
	}
	return nil
}

// removeUnused removes files that no record names, and makes the segments after the current one
// spares.
func (d *Disk) removeUnused(inv *inventory, spares []*scanned) {
	remove := inv.temporary
	for _, name := range inv.snapshots {
		if d.snap.index == 0 || name != d.snap.name() {
			remove = append(remove, name)
		}
	}
	for _, number := range inv.segments {
		if number < d.segments[0].number {
			remove = append(remove, segmentName(number))
		}
	}
	for _, name := range remove {
		if err := d.fs.Remove(d.path(name)); err != nil {
			d.warnRemove(name, err)
		}
	}
	d.spares.last = d.seg.number
	for _, s := range spares {
		// An earlier process may have created the file and ended before the file was durable.
		if s.number == d.spares.last+1 && s.size == d.cfg.SegmentBytes && !s.damaged &&
			errors.Join(s.file.Sync(), d.dir.Sync()) == nil {
			d.spares.add(s.file)
		} else {
			d.spares.drop(s.file, s.number)
		}
	}
	d.spares.start()
}

func (d *Disk) warnRemove(name string, err error) {
	d.logger.Warn("storage: cannot remove a file", "path", d.path(name), "error", err.Error())
}
