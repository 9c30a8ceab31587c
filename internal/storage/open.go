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
)

// The names in a data directory.
const (
	logDir       = "log"
	lockFile     = "lock"     // in logDir
	identityFile = "identity" // beside logDir
	etcdDir      = "member"   // of etcd, in the same place
	tempSuffix   = ".tmp"
)

// Unused reports whether a directory holds neither an identity nor a log, nor data of etcd, and
// may not exist at all. Only Open can judge any other directory.
func Unused(dir string) bool {
	for _, name := range []string{identityFile, logDir, etcdDir} {
		if _, err := os.Stat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			return false
		}
	}
	return true
}

func (d *Disk) identityPath() string { return filepath.Join(d.cfg.Dir, identityFile) }

func segmentName(number uint64) string { return fmt.Sprintf("%016d.segment", number) }

// parseSegmentName is the opposite.
func parseSegmentName(name string) (number uint64, ok bool) {
	_, err := fmt.Sscanf(name, "%d.segment", &number)
	return number, err == nil && segmentName(number) == name
}

// Open opens the data directory, creating it if need be, and reads all of the
// log once, so that damage shows now and not when an entry is needed. It returns
// ErrLocked, ErrCorrupt, ErrVersion, ErrForeign or ErrNoSpace when it cannot
// proceed, with what to do in the text.
func Open(cfg Config) (*Disk, error) {
	d, err := newDisk(cfg)
	if err == nil {
		if err = classify(d.lockDir()); err == nil {
			if err = classify(d.load()); err != nil {
				_ = d.release()
			}
		}
	}
	if err != nil {
		return nil, explain(cfg.Dir, err)
	}
	return d, nil
}

// explain adds the directory, and what a person can do.
func explain(dir string, err error) error {
	hint := ""
	switch {
	case errors.Is(err, ErrLocked):
		hint = "; stop the other process, or give this one a directory of its own"
	case errors.Is(err, ErrVersion):
		hint = "; run the release that wrote it, or a later one"
	case errors.Is(err, ErrForeign):
		hint = "; choose another directory"
	case errors.Is(err, ErrNoSpace):
		hint = "; free some space on the disk and start again, nothing is lost"
	case errors.Is(err, ErrCorrupt):
		hint = "; do not delete single files: keep a copy of the directory, check the disk," +
			" then restore a backup, or give this member an empty directory and start it" +
			" with --join ADDRESS --replace to have the data from the other members"
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
	cfg.SegmentBytes = max(minSegmentBytes, (cfg.SegmentBytes+blockBytes-1)/blockBytes*blockBytes)
	d := &Disk{
		cfg: cfg, fs: cfg.FS, logger: cfg.Logger, write: make(turn, 1), spares: newSpares(&cfg),
	}
	d.log.tailMax = cfg.TailBytes
	d.log.reset(position{})
	return d, nil
}

// lockDir makes and locks the directory.
func (d *Disk) lockDir() error {
	// Starting empty beside data that somebody believes to be served would be worse than not
	// starting.
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
	return err
}

// inventory is which files there are, by their names.
type inventory struct {
	segments  []uint64
	snapshots []string
	spares    []string
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
		case isSpare(name):
			inv.spares = append(inv.spares, name)
		case strings.HasSuffix(name, tempSuffix):
			inv.temporary = append(inv.temporary, name)
		}
	}
	slices.Sort(inv.segments)
	return inv, err
}

// load reads what is in the directory, and makes it durable.
func (d *Disk) load() error {
	inv, err := d.inventory()
	if err == nil {
		err = d.loadIdentity()
	}
	if err != nil {
		return err
	}
	if !d.bootstrapped {
		return d.clear(&inv)
	}
	before, last, err := d.loadLog(&inv)
	if err == nil {
		err = d.check()
	}
	if err == nil {
		err = d.mend(before, last)
	}
	if err != nil {
		return err
	}
	freed := d.tidy(&inv)
	d.spares.start(d.goodSpares(inv.spares), freed)
	return d.addEmpty()
}

// mend opens the newest segment for writing, and makes durable what was read: the last commit, and
// zeros behind it, where an unfinished write may have left sectors. Both are written although they
// were read like this: after a failed sync the kernel has the bytes as written, but the disk may
// have others.
func (d *Disk) mend(before, last *scanned) (err error) {
	// The name of the newest segment must be durable before the one before it is sealed.
	if err := errors.Join(d.fs.SyncDir(d.path("")), d.fs.SyncDir(d.cfg.Dir)); err != nil {
		return err
	}
	d.durable = d.small
	if d.file, err = d.fs.OpenWrite(last.image.name); err != nil {
		return err
	}
	d.number, d.size, d.cursor = last.image.number, last.head.size, last.cursor
	d.left = d.room()
	d.settled = len(last.last.payload) == 0 || last.last.at == 0 // the seal follows the last one
	if last.torn > last.at {
		d.logger.Info("storage: dropped an unfinished write", "path", last.image.name, "at", last.at)
	}
	zeros := make([]byte, min(d.size-d.at, 1<<20))
	for at := d.at; at < d.size; at += int64(len(zeros)) {
		if _, err := d.file.WriteAt(zeros[:min(d.size-at, int64(len(zeros)))], at); err != nil {
			return d.fail(err)
		}
	}
	if err := d.put(d.file, last.last.appendTo(nil, d.number), last.last.at); err != nil {
		return err
	}
	if before != nil && last.commit == last.begin {
		return d.sealAgain(before)
	}
	return nil
}

// sealAgain seals the segment before the current one, in which no commit is yet.
func (d *Disk) sealAgain(before *scanned) error {
	f, err := d.fs.OpenWrite(before.image.name)
	if err != nil {
		return err
	}
	w := d.writer
	d.file, d.number, d.cursor = f, before.image.number, before.cursor
	if before.sealed {
		d.at -= frameBytes(len(sealRecord))
	}
	err = d.seal()
	d.writer = w
	return errors.Join(err, f.Close())
}

// tidy removes what no record names, and returns the segments that are not needed.
func (d *Disk) tidy(inv *inventory) (freed []segment) {
	remove := inv.temporary
	for _, name := range inv.snapshots {
		if d.snap.index == 0 || name != d.snap.name() {
			remove = append(remove, name)
		}
	}
	for _, name := range remove {
		if err := d.fs.Remove(d.path(name)); err != nil {
			d.warnRemove(name, err)
		}
	}
	for _, number := range inv.segments {
		if number < d.segments[0].number {
			freed = append(freed, segment{number: number}) // of no known size, so it is removed
		}
	}
	return freed
}

func (d *Disk) warnRemove(name string, err error) {
	d.logger.Warn("storage: cannot remove a file", "path", d.path(name), "error", err.Error())
}

// goodSpares returns those that can become segments, and removes the others: a spare whose head was
// being written when the process ended has sectors of the segment to come.
func (d *Disk) goodSpares(names []string) (good []string) {
	for _, name := range names {
		if len(good) < maxSpares && name != largeSpare && d.spares.sound(name, d.number+1) {
			good = append(good, name)
		} else if err := d.fs.Remove(d.path(name)); err != nil {
			d.warnRemove(name, err)
		}
	}
	return good
}
