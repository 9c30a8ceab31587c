package rewind

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"leasehold.dev/internal/backup"
	"leasehold.dev/internal/encoding"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/storage"
)

// Condition is how a data directory is.
type Condition int

// The conditions of data directories.
const (
	// Empty is one without a member's data, or that is not there.
	Empty Condition = iota
	// Sound is one on which the member that it belongs to can run.
	Sound
	// Running is one that a process has open.
	Running
	// Stateless is one of a member that has received no state yet.
	Stateless
	// HalfRestored is one into which a restore was cut off.
	HalfRestored
	// Newer is one that a newer release has written.
	Newer
	// Foreign is one of another program.
	Foreign
	// RolledBack is one onto which an older state was put back.
	RolledBack
	// Damaged is one that has lost something, or on which something has changed.
	Damaged
)

// Directory is what is known of the data directory of a member. What is not known is zero; of one
// that a process has open that is all but what the run tells.
type Directory struct {
	Path      string
	Condition Condition
	Why       error // it is neither empty nor sound
	// Run is that of the process which has it open, or the last one; all zero if there is no word of
	// it.
	Run Run

	Cluster, Member uint64
	Name            string
	Members         []Member // in the order of their IDs
	// Index and Term are those of the last entry of the log, and Revision what all of it makes.
	Index, Term uint64
	Revision    int64
	// Free is how many bytes its disk has left. A member needs Reserve of them for the next part of
	// its log, or refuses writes.
	Free, Reserve uint64

	machine *fsm.Machine
	commit  uint64
}

// Member is one of a cluster, as a data directory knows it.
type Member struct {
	ID                   uint64
	Name                 string
	PeerURLs, ClientURLs []string
	Learner              bool
}

// Run is who has run on a data directory, and how that has ended.
type Run = storage.Run

// hex reads an ID as people see it; 0 if it is none.
func hex(id string) uint64 {
	n, err := strconv.ParseUint(id, 16, 64)
	if err != nil {
		return 0
	}
	return n
}

// errStop ends the reading of a directory.
var errStop = errors.New("nothing more is wanted")

// Examine finds out how a data directory is. It reads all of it, and changes nothing. The error
// says that it cannot be read, which tells nothing of what is in it.
func Examine(path string) (*Directory, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	// What is moved away must be the directory, and not a link to it.
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	d := &Directory{Path: path}
	if free, err := storage.Free(path); err == nil { // else nothing is known of the disk
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
		for _, m := range v.Members {
			d.Members = append(d.Members, Member{
				m.ID, m.Name, m.PeerURLs, m.ClientURLs, m.Learner,
			})
		}
	}
	return d, nil
}

// read takes in the records.
func (d *Directory) read() error {
	records, failed := make(chan storage.Record), make(chan error, 1)
	stop := make(chan struct{})
	go func() {
		defer close(records)
		want := storage.Wanted{Chunks: true}
		failed <- storage.Inspect(storage.Config{Dir: d.Path}, want, func(r storage.Record) error {
			switch v := r.Value.(type) { // they are the iterator's
			case storage.Chunk:
				v.Data = bytes.Clone(v.Data)
				r.Value = v
			case storage.LogEntry:
				v.Data = bytes.Clone(v.Data)
				r.Value = v
			}
			select {
			case records <- r:
				return nil
			case <-stop:
				return errStop
			}
		})
	}()
	wrong := d.apply(records)
	close(stop)
	for range records { // until the directory is closed
	}
	err := <-failed
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

// without judges a directory that has no log.
func (d *Directory) classifyWithoutLog() error {
	switch names, err := os.ReadDir(d.Path); {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	default:
		for _, n := range names {
			if n.Name() == "member" {
				d.Condition, d.Why = Foreign, errors.New("it is a data directory of etcd")
			}
		}
	}
	d.checkMarkers()
	return nil
}

// unusable notes why no member may run on the directory, if that is written there.
func (d *Directory) checkMarkers() {
	switch err := storage.Unusable(d.Path); {
	case errors.Is(err, storage.ErrHalfRestored):
		d.Condition, d.Why = HalfRestored, err
	case err != nil:
		d.Condition, d.Why = RolledBack, err
	}
}

// judge decides on the condition of a directory with a log.
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
		d.Condition, d.Why = Stateless, errors.New("the member has joined and received no state yet")
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

// take makes the state of the snapshot and of all the log after it: what of that was committed is
// not known to one member alone, and everything that was acknowledged is part of it. The error says
// what is damaged.
func (d *Directory) apply(records <-chan storage.Record) error {
	stale := false
	for r := range records {
		for more := true; more; { // a record that ends the snapshot comes after it
			more = false
			if r.Err != nil {
				return fmt.Errorf("%s: %w", r.Kind, r.Err)
			}
			switch v := r.Value.(type) {
			case storage.Identity:
				d.Cluster, d.Member, d.Name = v.Cluster, v.Member, v.Name
			case storage.HardState:
				d.commit = v.Commit
			case storage.Chunk:
				var err error
				if r, more, err = d.load(v, records); err != nil {
					return fmt.Errorf("the snapshot: %w", err)
				}
			case storage.LogEntry:
				var err error
				if stale, err = d.entry(v, stale); err != nil {
					return fmt.Errorf("entry %d of the log: %w", v.Index, err)
				}
			}
		}
	}
	return nil
}

// load makes the state of the snapshot, whose first chunk has come. It returns the record after the
// last one, if there is one.
func (d *Directory) load(
	first storage.Chunk, records <-chan storage.Record,
) (after storage.Record, more bool, err error) {
	chunk, number := &first, uint32(0)
	m, err := fsm.Restore(machineConfig(), func() ([]byte, bool, error) {
		c := chunk
		if chunk = nil; c == nil {
			r, ok := <-records
			next, isChunk := r.Value.(storage.Chunk)
			if after, more = r, ok && !isChunk; !ok || more {
				return nil, false, r.Err
			}
			c = &next
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
	return after, more, err
}

// entry applies an entry. A log that does not have the snapshot's last entry is stale: all of it
// comes from before the snapshot.
func (d *Directory) entry(e storage.LogEntry, stale bool) (bool, error) {
	switch {
	case d.machine == nil:
		return false, errors.New("there is no snapshot before it")
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
