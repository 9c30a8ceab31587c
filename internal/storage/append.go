package storage

import (
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// Append writes entries and the hard state, either of which may be empty, durably and atomically.
// Entries replace existing entries with the same index and all entries after them. Entries that
// have already been compacted are omitted. When Append returns, the entries are visible to the
// methods of raft.Storage. The Disk retains the entries, so the caller must not change them later.
//
// ErrNoSpace means that nothing was written. The call can be repeated.
func (d *Disk) Append(entries []*raftpb.Entry, hs *raftpb.HardState) error {
	return d.append(entries, hs, forClients)
}

// AppendReserved is like Append, but can use the rest of the current segment even if no spare can
// be made. It is for entries that must be written even when the disk is full, because they free
// space or keep promises, such as the expiry of leases.
func (d *Disk) AppendReserved(entries []*raftpb.Entry, hs *raftpb.HardState) error {
	return d.append(entries, hs, forLeases)
}

// HasRoom reports whether Append would accept entries.
func (d *Disk) HasRoom() bool {
	_, err := d.spares.state()
	return err == nil
}

// HasRoomToFree reports whether there is room for entries that clients use to free space on a full
// disk. Even if there is not, AppendReserved still has some room.
func (d *Disk) HasRoomToFree() bool {
	if d.HasRoom() {
		return true
	}
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.left > d.cfg.SegmentBytes/4
}

func (d *Disk) append(entries []*raftpb.Entry, hs *raftpb.HardState, p purpose) error {
	err := d.update(func() error {
		entries, err := d.follow(entries)
		if err != nil {
			return err
		}
		return d.add(entries, hs, p)
	})
	if err != nil {
		return fmt.Errorf("append: %w", err)
	}
	return nil
}

// add commits entries and a hard state, unless both are empty.
func (d *Disk) add(entries []*raftpb.Entry, hs *raftpb.HardState, p purpose) error {
	records := d.records
	for _, e := range entries {
		records = appendEntry(records, e)
	}
	if len(entries) == 0 {
		p = forState
	}
	hard := d.hard
	if !raft.IsEmptyHardState(hs) {
		hard = d.promised(hs)
		records = appendHard(records, hard)
	}
	if len(records) == 0 {
		return nil
	}
	return d.commit(p, records, func(f *frame) {
		if len(entries) > 0 && entries[0].GetIndex() <= d.log.last {
			d.cuts++
		}
		d.log.append(entries, f, d.seg)
		d.hard = hard
	})
}

// promised returns hs, raised so that it does not regress from the durable hard state. Entries may
// have waited for room. In that case, their hard state can have an earlier term than a vote saved
// in the meantime, and an earlier commit index than the snapshot that freed the space.
func (d *Disk) promised(hs *raftpb.HardState) *raftpb.HardState {
	term, vote := hs.GetTerm(), hs.GetVote()
	if old := d.hard; term < old.GetTerm() || term == old.GetTerm() && vote == 0 {
		term, vote = old.GetTerm(), old.GetVote()
	}
	return newHardState(term, vote, max(hs.GetCommit(), d.hard.GetCommit()))
}

// SaveVote makes a term and a vote durable, independently of entries that may not fit on the disk.
// It writes nothing if they, or a later term, are already durable. This saves scarce space, because
// pre-votes are repeated.
func (d *Disk) SaveVote(term, vote uint64) error {
	d.mu.RLock()
	saved := d.hard
	d.mu.RUnlock()
	if term < saved.GetTerm() || term == saved.GetTerm() && (vote == 0 || vote == saved.GetVote()) {
		return nil
	}
	return d.Append(nil, newHardState(term, vote, saved.GetCommit()))
}

// follow returns the entries that have not been compacted. It returns an error if they leave a gap
// after the log.
func (d *Disk) follow(entries []*raftpb.Entry) ([]*raftpb.Entry, error) {
	for len(entries) > 0 && entries[0].GetIndex() < d.log.first() {
		entries = entries[1:]
	}
	for i, e := range entries {
		want := entries[0].GetIndex() + uint64(i)
		if i == 0 {
			want = min(want, d.log.last+1)
		}
		if e.GetIndex() != want {
			return nil, fmt.Errorf("%w: got entry %d, want entry %d; the log ends at %d",
				errGap, e.GetIndex(), want, d.log.last)
		}
	}
	return entries, nil
}
