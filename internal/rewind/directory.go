package rewind

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"strconv"

	"leasehold.dev/internal/backup"
	"leasehold.dev/internal/encoding"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/storage"
)

// Condition is the condition of a data directory.
type Condition int

// These constants are the conditions of a data directory.
const (
	// Empty: the directory does not exist or contains no member's data.
	Empty Condition = iota
	// Sound: a member can run on the directory.
	Sound
	// Running: a process has the directory open.
	Running
	// Stateless: the member has not received any state yet.
	Stateless
	// HalfRestored: a restore into the directory was interrupted.
	HalfRestored
	// Newer: a newer release wrote the directory.
	Newer
	// Foreign: the directory belongs to another program.
	Foreign
	// RolledBack: an older state was copied over the directory.
	RolledBack
	// Damaged: data is missing or has changed.
	Damaged
)

// Directory describes a member's data directory. Unknown fields are zero. If a process has the
// directory open, only the information from Run is known.
type Directory struct {
	Path      string
	Condition Condition
	Why       error // set unless Condition is Empty or Sound
	// Run is the current process if the directory is open, and the last process otherwise. It is
	// zero if no run is recorded.
	Run storage.Run

	Cluster, Member uint64
	Name            string
	Members         []Member // sorted by ID
	// Index and Term identify the last log entry. Revision is the revision of the state after the
	// entire log has been applied.
	Index, Term uint64
	Revision    int64
	// Free is the free space on the directory's disk, in bytes. A member needs Reserve bytes for
	// the next log segment, and rejects writes if less is free.
	Free, Reserve uint64

	machine *fsm.Machine
	commit  uint64
}

// Member is a member of the cluster as recorded in a data directory.
type Member = fsm.Member

// hex parses a hexadecimal ID. It returns 0 if the ID is invalid.
func hex(id string) uint64 {
	n, err := strconv.ParseUint(id, 16, 64)
	if err != nil {
		return 0
	}
	return n
}

// errStop makes a function stop reading a directory.
var errStop = errors.New("stop")

// Examine determines the condition of a data directory. It reads the entire directory and changes
// nothing. If the directory cannot be read, Examine returns an error instead of a condition.
func Examine(path string) (*Directory, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	// MoveAway must rename the directory itself, not a symbolic link to it.
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	d := &Directory{Path: path}
	if free, err := storage.Free(path); err == nil { // on error, Free remains unknown
		d.Free, d.Reserve = free, storage.SegmentBytes
	}
	d.Run = storage.LastRun(path)
	if err := d.read(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if d.Condition == Running {
		d.Cluster, d.Member, d.Name = hex(d.Run.Cluster), hex(d.Run.Member), d.Run.Name
	}
	if d.machine != nil {
		v := d.machine.View()
		d.Revision = v.KV.Revision()
		d.Members = v.Members
	}
	return d, nil
}

// read reads and applies the records.
func (d *Directory) read() error {
	var err error
	next, stop := iter.Pull(func(yield func(storage.Record) bool) {
		want := storage.Wanted{Chunks: true}
		err = storage.Inspect(storage.Config{Dir: d.Path}, want, func(r storage.Record) error {
			if !yield(r) {
				return errStop
			}
			return nil
		})
	})
	wrong := d.apply(next)
	stop()
	switch {
	case errors.Is(err, storage.ErrLocked):
		d.Condition, d.Why = Running, err
		return nil
	case errors.Is(err, storage.ErrForeign):
		return d.classifyWithoutLog()
	case err != nil && !errors.Is(err, errStop):
		return err
	case errors.Is(wrong, fs.ErrPermission):
		return wrong
	}
	d.classify(wrong)
	return nil
}

// classifyWithoutLog determines the condition of a directory that has no log.
func (d *Directory) classifyWithoutLog() error {
	switch names, err := os.ReadDir(d.Path); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	default:
		for _, n := range names {
			if n.Name() == "member" {
				d.Condition, d.Why = Foreign, errors.New("this is an etcd data directory")
			}
		}
	}
	d.checkMarkers()
	return nil
}

// checkMarkers sets the condition if a marker file shows that the directory must not be used.
func (d *Directory) checkMarkers() {
	switch err := storage.Unusable(d.Path); {
	case errors.Is(err, storage.ErrHalfRestored):
		d.Condition, d.Why = HalfRestored, err
	case err != nil:
		d.Condition, d.Why = RolledBack, err
	}
}

// classify determines the condition of a directory that has a log.
func (d *Directory) classify(wrong error) {
	evidence := newest(d.Path, "damaged-", ".backup")
	switch {
	case errors.Is(wrong, encoding.ErrNewer):
		d.Condition, d.Why = Newer, wrong
	case wrong != nil:
		d.Condition, d.Why = Damaged, wrong
	case d.Member == 0:
		d.Condition = Empty
	case d.machine == nil:
		d.Condition, d.Why = Stateless, errors.New("the member joined, but has not received any state yet")
	case evidence != "":
		d.Condition, d.Why = Damaged, fmt.Errorf("its state differed from the majority's; a copy "+
			"of it is in %s", evidence)
	case d.commit > d.Index:
		d.Condition, d.Why = Damaged, fmt.Errorf("entry %d was committed, but the log ends at %d",
			d.commit, d.Index)
	default:
		d.Condition = Sound
	}
	d.checkMarkers()
}

// apply restores the snapshot and applies the entire log after it. A single member's data does not
// reveal which of these entries were committed, but they include everything that was acknowledged.
// The returned error describes damage.
func (d *Directory) apply(next func() (storage.Record, bool)) error {
	stale := false
	for r, ok := next(); ok; r, ok = next() {
		if _, isChunk := r.Value.(storage.Chunk); isChunk {
			var err error
			if r, err = d.load(r, next); err != nil {
				return fmt.Errorf("snapshot: %w", err)
			}
		}
		if r.Err != nil {
			return fmt.Errorf("%s: %w", r.Kind, r.Err)
		}
		switch v := r.Value.(type) {
		case storage.Identity:
			d.Cluster, d.Member, d.Name = v.Cluster, v.Member, v.Name
		case storage.HardState:
			d.commit = v.Commit
		case storage.LogEntry:
			var err error
			if stale, err = d.entry(v, stale); err != nil {
				return fmt.Errorf("log entry %d: %w", v.Index, err)
			}
		}
	}
	return nil
}

// load restores the snapshot that starts with chunk r. It returns the last record that it read. If
// the snapshot ends early, that record is not a chunk.
func (d *Directory) load(
	r storage.Record, next func() (storage.Record, bool),
) (last storage.Record, err error) {
	number := uint32(0)
	m, err := fsm.Restore(machineConfig(), func() ([]byte, bool, error) {
		if number > 0 {
			r, _ = next()
		}
		c, isChunk := r.Value.(storage.Chunk)
		if !isChunk {
			return nil, false, r.Err
		}
		if c.Number != number {
			return nil, false, fmt.Errorf("chunk %d is missing", number)
		}
		number++
		return c.Data, true, nil
	})
	if err == nil {
		d.machine, d.Index, d.Term = m, m.Index(), m.Term()
	}
	return r, err
}

// entry applies a log entry. If the log does not contain the snapshot's last entry, the log is
// stale: all of it was written before the snapshot.
func (d *Directory) entry(e storage.LogEntry, stale bool) (bool, error) {
	switch {
	case d.machine == nil:
		return false, errors.New("no snapshot precedes it")
	case e.Index == d.machine.Index() && e.Index == d.Index:
		return e.Term != d.machine.Term(), nil
	case stale || e.Index < d.machine.Index():
		return stale, nil
	case e.Index != d.Index+1:
		return false, fmt.Errorf("entry %d is missing", d.Index+1)
	}
	r := replay{machine: d.machine}
	err := r.entry(e.Index, &backup.Entry{Term: e.Term, Type: byte(e.Type), Data: e.Data})
	d.Index, d.Term = e.Index, e.Term
	return false, err
}
