package storage

import (
	"errors"
	"fmt"
)

const (
	// keptBytes limits how much of a commit's memory is kept for the next commit.
	keptBytes = 2 << 20

	// alignedBytes is a size that Go allocates at a page boundary, which WriteSync prefers.
	alignedBytes = 64 << 10

	// relief is the room in each segment for forRelief: one snapshot and one compaction.
	relief = 2 * blockBytes
)

// A purpose determines how much of a full disk a commit can use.
type purpose int

const (
	// forClients is rejected if no spare segment can be made.
	forClients purpose = iota
	// forLeases can use the current segment, except the part reserved for forState.
	forLeases
	// forState is for votes, snapshots and compaction. It can use the entire segment except the
	// relief.
	forState
	// forRelief is for commits that make earlier segments unnecessary. It can also use the relief.
	forRelief
)

// writer is the end of the log, where commits are written.
type writer struct {
	seg     *segment // the current segment
	cursor           // where the next commit begins
	settled bool     // whether the last commit is empty
	seen    uint64   // last commit before the latest Settle

	records, blocks []byte // empty slices that keep the memory of the last commit
}

// room returns how many bytes of frames fit in the current segment, not counting the relief. The
// last block of a segment is for the seal.
func (w *writer) room() int64 { return w.seg.size - blockBytes - relief - w.at }

// payload returns the content of a commit. The first commit of a segment begins with the state
// before the commit, without the entries.
func (d *Disk) payload(records []byte) []byte {
	if d.at > 0 {
		return records
	}
	return append(d.head(), records...)
}

func (d *Disk) head() []byte {
	b := appendHead(nil, segmentHead{
		number: d.seg.number, size: d.seg.size, chain: d.chain, owner: d.identity,
	})
	if d.hard != nil {
		b = appendHard(b, d.hard)
	}
	b = appendMark(b, kindMark, d.mark)
	b = appendPeers(b, d.peers)
	if d.snap.index > 0 {
		b = appendManifest(b, d.snap)
	}
	return b
}

// reserve returns how much of each segment is reserved for votes and snapshots while there is no
// next segment.
func (d *Disk) reserve() int64 { return wholeBlocks(d.cfg.SegmentBytes / 16) }

// fit returns the payload of a commit and ensures that the current segment has room for it. If
// necessary, it begins the next segment.
func (d *Disk) fit(p purpose, records []byte) ([]byte, error) {
	reserve := int64(0)
	if p <= forLeases {
		reserve = d.reserve()
	}
	payload, room := d.payload(records), d.room()
	switch ready, full := d.spares.state(); {
	case full != nil && p == forClients:
		return nil, full
	case !ready:
		room -= reserve
	}
	n := frameBytes(len(payload))
	if n <= room {
		return payload, nil
	}
	if d.at > 0 {
		err := d.roll()
		if p == forRelief && errors.Is(err, ErrNoSpace) && n <= d.room()+relief {
			return payload, nil
		}
		if err != nil {
			return nil, err
		}
		payload = d.payload(records)
		n = frameBytes(len(payload))
	}
	if n+reserve > d.room() {
		if err := d.grow(n + d.reserve()); err != nil {
			return nil, err
		}
		payload = d.payload(records) // the payload contains the segment's size
	}
	return payload, nil
}

// commit writes records durably and atomically, and then applies them to memory. records can share
// memory with d.records.
func (d *Disk) commit(p purpose, records []byte, apply func(*frame)) error {
	payload, err := d.fit(p, records)
	if err != nil {
		return err
	}
	f := d.cursor.frame(payload)
	if err := d.put(d.seg, &f); err != nil {
		return d.fail(err)
	}
	d.cursor.pass(&f)
	d.mu.Lock()
	apply(&f)
	d.left = d.room()
	freed := d.freedLocked()
	d.mu.Unlock()
	d.spares.recycle(freed)
	d.settled = len(records) == 0
	if len(records) > 0 {
		d.records = records[:0]
	}
	if cap(d.records) > keptBytes {
		d.records, d.blocks = nil, nil
	}
	return nil
}

// put writes a frame to a segment, durably. After an error, there is no telling what is on disk.
func (d *Disk) put(to *segment, f *frame) error {
	if n := int(f.size); cap(d.blocks) < n {
		d.blocks = make([]byte, max(n, alignedBytes))
	}
	d.blocks = f.appendTo(d.blocks[:0], to.number)
	return to.file.WriteSync(d.blocks, f.at)
}

// roll ends the current segment and begins the next one. The next segment's name is durable before
// the current one is sealed, and the seal is durable before the next segment contains a commit. So
// no commit follows a segment that ends without a seal, and a sealed segment always has a
// successor.
func (d *Disk) roll() error {
	next, err := d.spares.take()
	if err != nil {
		return err
	}
	seal := d.cursor.frame(sealRecord)
	err = d.put(d.seg, &seal)
	d.use(next)
	if err != nil {
		return d.fail(err)
	}
	return nil
}

// use makes a segment the current one.
func (d *Disk) use(s *segment) {
	d.seg, d.at = s, 0
	d.mu.Lock()
	defer d.mu.Unlock()
	d.segments = append(d.segments, s)
	d.left = d.room()
}

// grow makes the current segment, which has no commits yet, large enough for n bytes of frames.
func (d *Disk) grow(n int64) error {
	size := n + relief + blockBytes
	err := writeZeros(d.seg.file, d.seg.size, size)
	if err == nil {
		err = d.seg.file.Sync()
	}
	if err != nil { // nothing there was acknowledged, and the next attempt writes all of it again
		return fmt.Errorf("%w: create a segment of %d bytes in %s: %w", ErrNoSpace, size, d.cfg.Dir, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.seg.size = size
	return nil
}

// Settle writes an empty commit after the last one, unless there has been a commit since the last
// call. It is called regularly. This matters because, until another commit follows, lost sectors of
// the last commit look like an unfinished write.
func (d *Disk) Settle() error {
	return d.update(func() error {
		if d.seen != d.cursor.commit {
			d.seen = d.cursor.commit
			return nil
		}
		return d.addEmpty()
	})
}

// addEmpty writes an empty commit, which shows that the previous commit was acknowledged. On a full
// disk, it leaves room for votes.
func (d *Disk) addEmpty() error {
	if d.settled {
		return nil
	}
	err := d.commit(forLeases, nil, func(*frame) {})
	if errors.Is(err, ErrNoSpace) {
		err = nil
	}
	return err
}
