package storage

import (
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2"
	"go.etcd.io/raft/v3/raftpb"
)

// load reads everything but the snapshot's chunks.
func (d *Disk) load() error {
	if err := d.loadRecords(); err != nil {
		return err
	}
	if !d.bootstrapped {
		return d.checkEmpty()
	}
	if err := d.loadLog(); err != nil {
		return err
	}
	return d.normalize()
}

func (d *Disk) loadRecords() error {
	var mark position
	load := func(key []byte, decode func(rec []byte) error) error {
		rec, closer, err := d.db.Get(key)
		if errors.Is(err, pebble.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		defer ignoreClose(closer)
		return decode(rec)
	}
	err := errors.Join(
		load(keyIdentity, func(rec []byte) (err error) {
			d.bootstrapped = true
			d.identity, err = decodeIdentity(rec)
			return err
		}),
		load(keyPeers, func(rec []byte) (err error) {
			d.peers, err = decodePeers(rec)
			return err
		}),
		load(keyHard, func(rec []byte) (err error) {
			d.hard, err = decodeHardState(rec)
			return err
		}),
		load(keyConf, func(rec []byte) (err error) {
			d.conf, err = decodeConf(rec)
			return err
		}),
		load(keyMark, func(rec []byte) (err error) {
			mark, err = decodeMark(rec)
			return err
		}),
		load(keyManifest, func(rec []byte) (err error) {
			d.snap, err = decodeManifest(rec)
			return err
		}),
	)
	d.log.reset(mark)
	return err
}

// ignoreClose closes what cannot fail to.
func ignoreClose(c io.Closer) { _ = c.Close() }

// checkEmpty makes sure that a database without an identity holds nothing: the
// identity is written first, so anything else means that it was lost.
func (d *Disk) checkEmpty() error {
	it, err := d.db.NewIter(nil)
	if err != nil {
		return err
	}
	defer ignoreClose(it)
	if it.First() {
		return fmt.Errorf("%w: there is data (%q) but no identity", ErrCorrupt, it.Key())
	}
	return it.Error()
}

// loadLog reads the log from the mark on.
func (d *Disk) loadLog() error {
	it, err := d.db.NewIter(&pebble.IterOptions{
		LowerBound: entryKey(d.log.first()), UpperBound: keyEntriesEnd,
	})
	if err != nil {
		return err
	}
	defer ignoreClose(it)
	for it.First(); it.Valid(); it.Next() {
		e, err := decodeEntry(it.Value(), it.Key())
		if err != nil {
			return err
		}
		if want := d.log.last + 1; e.GetIndex() != want {
			return fmt.Errorf("%w: entry %d is missing from the log", ErrCorrupt, want)
		}
		d.log.push(e)
		d.log.evict()
	}
	return it.Error()
}

// raised returns the hard state of a member that has a snapshot at s; without one, s is zero.
//
// A received snapshot is on disk before the hard state that goes with it, and a
// crash may come between. Everything in a snapshot is committed, and a member
// that has it has seen its term; having stored no vote of that term, it has cast
// none.
func raised(hs *raftpb.HardState, s position) *raftpb.HardState {
	if hs.GetCommit() >= s.index {
		return hs
	}
	up := &raftpb.HardState{
		Term: new(hs.GetTerm()), Vote: new(hs.GetVote()), Commit: new(s.index),
	}
	if up.GetTerm() < s.term {
		up.Term, up.Vote = new(s.term), new(uint64(0))
	}
	return up
}

// normalize makes the hard state agree with the log and the snapshot.
func (d *Disk) normalize() error {
	s := d.snap.position
	d.hard = raised(d.hard, s)
	if d.log.prev.index > s.index {
		return fmt.Errorf("%w: the log begins after entry %d, but the snapshot ends at %d",
			ErrCorrupt, d.log.prev.index, s.index)
	}
	if c := d.hard.GetCommit(); c > max(d.log.last, s.index) {
		return fmt.Errorf("%w: entry %d was committed, but the log ends at %d",
			ErrCorrupt, c, d.log.last)
	}
	return nil
}

// repair finishes what a crash may have left half done: dropping the log after a
// snapshot that is not a prefix of it.
func (d *Disk) repair() error {
	if d.log.has(d.snap.position) {
		return nil
	}
	return d.dropLog(d.snap.position)
}
