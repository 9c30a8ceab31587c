package storage

import (
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"time"
)

const (
	// flushBytes is how many bytes of records Append keeps in memory for a later sync, at most.
	flushBytes = 1 << 20

	// settleDelay is how long after the last commit an empty one follows it.
	settleDelay = time.Second

	// relief is the room that each segment keeps for forRelief: a snapshot and a compaction.
	relief = 2 * blockBytes
)

// A purpose says how much of a full disk a commit may use.
type purpose int

const (
	// forClients is refused as soon as no spare segment can be made.
	forClients purpose = iota
	// forLeases may use the current segment, but for what is left to forState.
	forLeases
	// forState is for votes, snapshots and compaction, and may use all of it but the relief.
	forState
	// forRelief is for what makes earlier segments unnecessary, and may use the relief too.
	forRelief
)

// writer is the end of the log.
type writer struct {
	file   File
	number uint64 // of the segment
	size   int64  // of the segment
	cursor        // where the next commit begins

	pending []byte // records of the next commit
	first   uint64 // the index of the first entry in it, 0 for none
	durable small  // as of the last commit
	settled bool   // the last commit is empty
	blocks  []byte // memory of the last commit

	kept      int    // how much of pending belongs to calls that have returned
	keptFirst uint64 // first, then

	timer *time.Timer // runs settle; nil if none is due
	armed uint64      // the commit after which it was started
}

// room returns how many bytes of frames the current segment has left, without the relief. Its last
// block is for the seal.
func (w *writer) room() int64 { return w.size - blockBytes - relief - w.at }

// ensure makes sure that a commit of so many bytes fits into the current segment, and begins the
// next one if it does not.
func (d *Disk) ensure(payload int, p purpose) error {
	n, room := frameBytes(payload), d.room()
	if d.spares.full() {
		switch p {
		case forClients:
			room = 0
		case forLeases:
			room -= d.size / 16
		}
	}
	switch {
	case n <= room:
		return nil
	case n <= d.room(): // but it is kept for others
		return d.noSpace()
	}
	err := d.roll(n)
	if p == forRelief && errors.Is(err, ErrNoSpace) && n <= d.room()+relief {
		err = nil
	}
	return err
}

// purposeOf returns that of a commit with which the log needs no segment before this one, or soon
// needs none.
func (d *Disk) purposeOf(segment uint64) purpose {
	if segment > d.segments[0].number {
		return forRelief
	}
	return forState
}

func (d *Disk) noSpace() error {
	return fmt.Errorf("%w: no spare segment of %d bytes can be made in %s",
		ErrNoSpace, d.cfg.SegmentBytes, d.cfg.Dir)
}

// commit writes the pending records durably, and then applies them to memory.
func (d *Disk) commit(p purpose, apply func()) error {
	if err := d.ensure(len(d.pending), p); err != nil {
		return err
	}
	f := frame{
		at: d.at, size: frameBytes(len(d.pending)), commit: d.cursor.commit + 1,
		chain: crc32.Update(d.chain, castagnoli, d.pending), payload: d.pending,
	}
	d.blocks = f.appendTo(d.blocks[:0], d.number)
	if err := d.put(d.file, d.blocks, f.at); err != nil {
		return err
	}
	d.cursor = cursor{at: f.at + f.size, commit: f.commit, chain: f.chain}
	d.mu.Lock()
	if d.first > 0 {
		d.placeLocked(place{d.first, d.number, f.at, f.size})
	}
	if apply != nil {
		apply()
	}
	d.durable, d.settled = d.small, len(d.pending) == 0
	d.left = d.room()
	freed := d.freedLocked()
	d.mu.Unlock()
	d.spares.recycle(freed)
	if len(d.pending) > 0 {
		d.arm()
	}
	d.pending, d.first, d.kept, d.keptFirst = d.pending[:0], 0, 0, 0
	if cap(d.pending) > 2*flushBytes {
		d.pending, d.blocks = nil, nil
	}
	return nil
}

// put writes durably. An error is final.
func (d *Disk) put(f File, b []byte, at int64) error {
	if _, err := f.WriteAt(b, at); err != nil {
		return d.fail(err)
	}
	if err := f.Sync(); err != nil {
		return d.fail(err)
	}
	return nil
}

// freedLocked takes out the segments that the log needs no longer, durably.
func (d *Disk) freedLocked() (freed []segment) {
	n := 0
	for n < len(d.segments)-1 && d.segments[n].number < d.mark.segment {
		n++
	}
	freed = slices.Clone(d.segments[:n])
	d.segments = slices.Delete(d.segments, 0, n)
	return freed
}

// roll goes on in the next segment, in which a frame of n bytes has room. Its head is durable
// before it has its name, its name before the seal of the current one, and that before its first
// commit. So a segment that ends without a seal is followed by no commit, and the one after a seal
// exists.
func (d *Disk) roll(n int64) error {
	number, size := d.number+1, d.cfg.SegmentBytes
	head, err := d.head(number, size)
	if err != nil {
		return err
	}
	name := ""
	if need := frameBytes(len(head)+8) + n + relief + blockBytes; need > size {
		size = need
		if head, err = d.head(number, size); err != nil {
			return err
		}
		name, err = d.spares.large(size)
	} else {
		name, err = d.spares.take()
	}
	if err != nil {
		return err
	}
	w, err := d.begin(name, writer{number: number, size: size, cursor: d.cursor}, head)
	if err != nil {
		return err
	}
	if err := d.seal(); err != nil {
		_ = w.file.Close()
		return err
	}
	if err := d.file.Close(); err != nil {
		d.logger.Warn("storage: a segment cannot be closed", "error", err.Error())
	}
	d.file, d.number, d.size, d.at = w.file, number, size, w.at
	d.mu.Lock()
	defer d.mu.Unlock()
	d.segments = append(d.segments, segment{number, size})
	d.left = d.room()
	return nil
}

// head returns the payload of the first frame of a segment.
func (d *Disk) head(number uint64, size int64) ([]byte, error) {
	s := &d.durable
	b := appendHead(nil, segmentHead{number: number, size: size, chain: d.chain, owner: d.identity})
	if s.hard != nil {
		b = appendHard(b, s.hard)
	}
	b = appendMark(b, kindMark, s.mark)
	b = appendPeers(b, s.peers)
	if s.snap.index == 0 {
		return b, nil
	}
	return appendManifest(b, s.snap)
}

// begin makes a segment of a spare. Of w it takes the number, the size, and the commit before.
func (d *Disk) begin(spare string, w writer, head []byte) (writer, error) {
	var err error
	if w.file, err = d.fs.OpenWrite(d.path(spare)); err != nil {
		d.spares.giveBack(spare)
		return w, classify(err)
	}
	f := frame{size: frameBytes(len(head)), commit: w.cursor.commit, payload: head}
	if err = d.put(w.file, f.appendTo(nil, w.number), 0); err == nil {
		if err = d.fs.Rename(d.path(spare), d.path(segmentName(w.number))); err == nil {
			err = d.fs.SyncDir(d.path(""))
		}
		if err != nil {
			err = d.fail(err)
		}
	}
	if err != nil {
		_ = w.file.Close()
		return w, err
	}
	w.at = f.size
	return w, nil
}

// sealRecord is the last commit of a segment.
var sealRecord = appendRecord(nil, kindSealed, nil, nil)

// seal ends the current segment, durably. Nothing may be written to it afterwards.
func (d *Disk) seal() error {
	f := frame{
		at: d.at, size: frameBytes(len(sealRecord)), commit: d.cursor.commit + 1,
		chain: crc32.Update(d.chain, castagnoli, sealRecord), payload: sealRecord,
	}
	return d.put(d.file, f.appendTo(nil, d.number), d.at)
}

// arm starts the timer after a commit.
func (d *Disk) arm() {
	if d.cfg.inline || d.timer != nil {
		return
	}
	d.armed = d.cursor.commit
	d.timer = time.AfterFunc(settleDelay, func() {
		if err := d.settle(); err != nil && !errors.Is(err, errClosed) {
			d.logger.Debug("storage: the last commit is not followed by another", "error", err.Error())
		}
	})
}

// settle is addEmpty, if no commit came since the timer was started.
func (d *Disk) settle() error {
	return d.update(func() error {
		d.timer = nil
		if d.cursor.commit != d.armed {
			d.arm()
			return nil
		}
		return d.addEmpty()
	})
}

// addEmpty makes an empty commit follow the last one, which shows that the last one was
// acknowledged. Until then, sectors of the last commit that the disk loses look like those of an
// unfinished write. On a full disk, it leaves room for votes.
func (d *Disk) addEmpty() error {
	switch {
	case len(d.pending) > 0:
		return d.commit(forState, nil)
	case d.settled:
		return nil
	}
	err := d.commit(forLeases, nil)
	if errors.Is(err, ErrNoSpace) {
		err = nil
	}
	return err
}

func (d *Disk) stopTimer() {
	if d.timer != nil {
		d.timer.Stop()
	}
}
