package storage

import (
	"context"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// Bootstrap makes an empty directory a member's, durably. conf is the membership
// the log starts from at index 0; nil or empty for a member that joins a cluster
// and gets its membership with a snapshot. It fails if the directory
// has an identity already.
//
// A log that starts from a membership at index 0 does not contain it. So a member
// that joins later cannot be fed from entry 1: compact the log, and thereby make
// Raft send it a snapshot, before the first member is added.
func (d *Disk) Bootstrap(id Identity, conf *raftpb.ConfState) error {
	if err := d.enter(); err != nil {
		return err
	}
	defer d.life.RUnlock()
	d.write.Lock()
	defer d.write.Unlock()
	if _, done := d.Identity(); done {
		return errBootstrapped
	}
	rec, err := encodeConf(conf)
	if err != nil {
		return err
	}
	err = d.commit(true, set(keyIdentity, encodeIdentity(id)), set(keyConf, rec))
	if err != nil {
		return fmt.Errorf("bootstrap: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.identity, d.bootstrapped = id, true
	d.conf = proto.CloneOf(conf)
	return nil
}

// An operation is a part of a batch.
type operation func(b *pebble.Batch) error

func set(key, value []byte) operation {
	return func(b *pebble.Batch) error { return b.Set(key, value, nil) }
}

func deleteRange(from, to []byte) operation {
	return func(b *pebble.Batch) error { return b.DeleteRange(from, to, nil) }
}

// commit writes all operations as one atomic step. The caller holds d.write.
func (d *Disk) commit(sync bool, all ...operation) error {
	b := d.db.NewBatch()
	for _, o := range all {
		if err := o(b); err != nil { // which a batch without an index never returns
			return err
		}
	}
	opts := pebble.NoSync
	if sync {
		opts = pebble.Sync
	}
	err := d.hand(func() error { return b.Commit(opts) })
	if err == nil {
		ignoreClose(b) // else Pebble may still be using it
	}
	return err
}

// Append writes entries and the hard state, which may be nil or empty, as one
// atomic step. Entries replace those of the same index and all after them;
// entries that are already compacted are left out. On return they are visible to
// the raft.Storage methods, and durable if sync is set; without it, they are
// durable after the next call with sync, in order. Disk keeps the entries, so
// the caller must not change them later.
//
// ErrNoSpace means that nothing was written and the call can be repeated. It is
// returned only if there are entries: a vote is small enough for the reserve,
// and should not wait.
func (d *Disk) Append(entries []*raftpb.Entry, hs *raftpb.HardState, sync bool) error {
	return d.append(entries, hs, sync, d.space.admit)
}

// AppendReserved is Append, synced, of entries that may use half of the reserve,
// and the ballast if that is gone as well: for what must go on when the disk is
// full, since it frees or keeps promises rather than grows, such as the expiry of
// leases.
func (d *Disk) AppendReserved(entries []*raftpb.Entry, hs *raftpb.HardState) error {
	return d.append(entries, hs, true, d.space.admitLast)
}

// HasRoom reports whether Append would take entries.
func (d *Disk) HasRoom() bool { return d.space.admit(0) }

// HasRoomToFree reports whether there is room for entries that clients ask for to free space on a
// full disk. When there is not, AppendReserved still has some.
func (d *Disk) HasRoomToFree() bool { return d.space.roomToFree() }

func (d *Disk) append(
	entries []*raftpb.Entry, hs *raftpb.HardState, sync bool, room func(int) bool,
) error {
	if err := d.enter(); err != nil {
		return err
	}
	defer d.life.RUnlock()
	d.write.Lock()
	defer d.write.Unlock()

	entries, last, err := d.admit(entries, room)
	if err != nil {
		return err
	}
	if raft.IsEmptyHardState(hs) {
		hs = nil
	}
	if len(entries) == 0 && hs == nil {
		if !sync {
			return nil
		}
		return d.hand(d.syncLog)
	}
	err = d.commit(sync, func(b *pebble.Batch) error { return fill(b, entries, hs, last) })
	if err != nil {
		return fmt.Errorf("append: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(entries) > 0 && entries[0].GetIndex() <= d.log.last {
		d.cuts++
	}
	d.log.append(entries)
	if hs != nil {
		d.hard = newHardState(hs.GetTerm(), hs.GetVote(), hs.GetCommit())
	}
	return nil
}

// admit checks entries against the log and the free space. It returns those that
// are not compacted yet, and the last index of the log before them.
func (d *Disk) admit(
	entries []*raftpb.Entry, room func(int) bool,
) ([]*raftpb.Entry, uint64, error) {
	d.mu.RLock()
	bootstrapped, first, last := d.bootstrapped, d.log.first(), d.log.last
	d.mu.RUnlock()
	if !bootstrapped {
		return nil, 0, errNotBootstrapped
	}
	for len(entries) > 0 && entries[0].GetIndex() < first {
		entries = entries[1:]
	}
	if len(entries) == 0 {
		return nil, last, nil
	}
	if at := entries[0].GetIndex(); at > last+1 {
		return nil, 0, fmt.Errorf("%w: append at %d, the log ends at %d", errGap, at, last)
	}
	size := 0
	for i, e := range entries {
		if want := entries[0].GetIndex() + uint64(i); e.GetIndex() != want {
			return nil, 0, fmt.Errorf("%w: append has entry %d where %d belongs",
				errGap, e.GetIndex(), want)
		}
		size += entryKeyLen + headerLen + entryPayloadLen(e)
	}
	if !room(size) {
		return nil, 0, fmt.Errorf("append: %w: %d bytes are free in %s",
			ErrNoSpace, d.space.free.Load(), d.cfg.Dir)
	}
	return entries, last, nil
}

// fill puts entries and hard state into the batch; last is the log's last index.
// Records are built in the batch's own memory.
func fill(b *pebble.Batch, entries []*raftpb.Entry, hs *raftpb.HardState, last uint64) error {
	for _, e := range entries {
		op := b.SetDeferred(entryKeyLen, headerLen+entryPayloadLen(e))
		putEntryKey(op.Key, e.GetIndex())
		appendEntry(op.Value[:headerLen], e)
		seal(op.Value, entryVersion, op.Key)
		if err := op.Finish(); err != nil {
			return err
		}
	}
	if n := len(entries); n > 0 && entries[n-1].GetIndex() < last {
		end := entries[n-1].GetIndex()
		if err := b.DeleteRange(entryKey(end+1), entryKey(last+1), nil); err != nil {
			return err
		}
	}
	if hs != nil {
		op := b.SetDeferred(len(keyHard), hardStateLen(hs))
		copy(op.Key, keyHard)
		putHardState(op.Value, hs)
		return op.Finish()
	}
	return nil
}

// syncLog makes durable what was written without sync.
func (d *Disk) syncLog() error { return d.db.LogData(nil, pebble.Sync) }

// Flush makes everything appended so far durable.
func (d *Disk) Flush() error {
	if err := d.enter(); err != nil {
		return err
	}
	defer d.life.RUnlock()
	return d.run(d.syncLog)
}

// Compact drops the log up to and including index. It fails if no snapshot
// reaches index, and does nothing if the log begins later already. It
// is not synced: after a crash the log may begin earlier again. While the disk is
// full, it takes the time to hand the space back.
func (d *Disk) Compact(index uint64) error {
	if err := d.enter(); err != nil {
		return err
	}
	defer d.life.RUnlock()
	if err := d.compact(index); err != nil {
		return fmt.Errorf("compact to %d: %w", index, err)
	}
	if d.space.full.Load() {
		d.reclaim()
	}
	return nil
}

func (d *Disk) compact(index uint64) error {
	d.write.Lock()
	defer d.write.Unlock()
	d.mu.RLock()
	first, snap := d.log.first(), d.snap.index
	term, err := d.log.term(index)
	d.mu.RUnlock()
	switch {
	case index < first:
		return nil
	case index > snap:
		return fmt.Errorf("%w: the snapshot ends at %d", errGap, snap)
	case err != nil:
		return err
	}
	mark := position{index: index, term: term}
	err = d.commit(false,
		deleteRange(entryKey(first), entryKey(index+1)), set(keyMark, encodeMark(mark)))
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cuts++
	d.log.compact(mark)
	return nil
}

// reclaim makes Pebble drop deleted entries from its files now. Left alone it
// does that when the memtable is full, which on a full disk is never.
func (d *Disk) reclaim() {
	err := d.run(func() error {
		return d.db.Compact(context.Background(), keyEntries, keyEntriesEnd, false)
	})
	if err != nil {
		d.logger.Warn("storage: space could not be reclaimed", "error", err.Error())
	}
}

// dropLog makes the log empty, beginning after p, durably. The caller holds
// d.write, or is Open. What is committed stays: a snapshot that is not in the log, and ends before
// that, is not of this log.
func (d *Disk) dropLog(p position) error {
	if c := d.hard.GetCommit(); p.index < c {
		return fmt.Errorf("%w: the snapshot at %d does not fit the log, of which %d was committed",
			ErrCorrupt, p.index, c)
	}
	err := d.commit(true, deleteRange(keyEntries, keyEntriesEnd), set(keyMark, encodeMark(p)))
	if err != nil {
		return fmt.Errorf("drop the log before %d: %w", p.index, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.cuts++
	d.log.reset(p)
	return nil
}
