package sim

import (
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/shell"
)

// content is the content of a disk: a snapshot and the log after it.
type content struct {
	hard    *raftpb.HardState
	first   uint64 // index of entries[0]; 1 on an empty disk
	before  uint64 // term of the entry at index first-1
	entries []*raftpb.Entry
	snap    snapshot
}

// snapshot is a snapshot on a disk or in transit. It is encoded on the first read, because most
// snapshots are never read.
type snapshot struct {
	meta   *raftpb.SnapshotMetadata // nil if there is no snapshot
	image  *fsm.Image
	chunks [][]byte
}

func (s *snapshot) index() uint64 { return s.meta.GetIndex() }

// disk is a member's disk. It executes the decisions of shell.Saver. Writes are visible immediately
// through raft.Storage, and durable after a sync. A crash keeps only some of the oldest writes
// since the last sync, each of them complete.
type disk struct {
	content
	w           *world
	p           *process // the process that is writing
	saver       shell.Saver
	queue       []*raftpb.Message
	todo        []shell.Saving // removed from the queue; the first one is being saved
	busy        bool
	incarnation int // of the writing process
	began       Time
	// synced is the content as of the last sync, and loose holds the writes since then. Both are
	// nil if there are none.
	synced *content
	loose  []shell.Saving
	// arrival is the received snapshot that the next message with a snapshot refers to.
	arrival *arrival

	slow  Time // additional duration of a sync
	stuck Time // no sync completes before this
	full  bool // no append can start
}

// founded returns the disk of a founding member.
func founded(w *world, first snapshot) *disk {
	one := uint64(1)
	return &disk{w: w, content: content{
		first: 2, before: 1, snap: first,
		hard: &raftpb.HardState{Term: &one, Commit: &one, Vote: new(uint64)},
	}}
}

// start attaches a process to the disk.
func (d *disk) start(p *process) {
	d.p, d.saver, d.arrival = p, shell.Saver{}, nil
	d.normalize()
}

// put accepts messages of the running process.
func (d *disk) put(messages []*raftpb.Message) {
	d.queue = append(d.queue, messages...)
	d.next()
}

// next starts saving the queued messages if anything is waiting for them.
func (d *disk) next() {
	if d.busy || d.full || !slices.ContainsFunc(d.queue, shell.Awaited) {
		return
	}
	d.busy, d.began = true, d.w.now
	d.plan()
	d.work()
}

// plan decides how to save the queued messages.
func (d *disk) plan() {
	for x := range d.saver.Save(d.queue) {
		x.Saved = slices.Clone(x.Saved)
		d.todo = append(d.todo, x)
	}
	d.queue = nil
}

// work executes the planned operations. An operation that takes time completes later.
func (d *disk) work() {
	w := d.w
	for len(d.todo) > 0 {
		x := &d.todo[0]
		if x.Install == nil {
			d.write(x)
		}
		if x.Install != nil || len(x.Saved) == 0 {
			d.finish(max(w.now+50+w.exp(w.p.Sync)+d.slow, d.stuck), d.incarnation)
			return
		}
		d.todo = d.todo[1:]
	}
	d.busy = false
	d.next()
}

// finish completes an operation that takes time.
func (d *disk) finish(at Time, incarnation int) {
	d.w.at(at, func() {
		if d.incarnation != incarnation {
			return
		}
		if d.stuck > d.w.now { // the disk got stuck in the meantime
			d.finish(d.stuck, incarnation)
			return
		}
		d.durable(&d.todo[0])
		d.todo = d.todo[1:]
		d.work()
	})
}

// durable makes all writes durable, and makes a received snapshot the newest.
func (d *disk) durable(x *shell.Saving) {
	d.synced, d.loose = nil, nil
	if x.Install == nil {
		return
	}
	a := d.arrival
	if a.snap.index() != x.Install.GetSnapshot().GetMetadata().GetIndex() {
		panic("sim: another snapshot is to be installed than has arrived")
	}
	d.arrival = nil
	d.install(a.snap)
	if !d.p.dead {
		a.ended(true)
	}
}

// stall returns how long the current write has been in progress.
func (d *disk) stall() Time {
	switch {
	case d.busy:
		return d.w.now - d.began
	case d.full && slices.ContainsFunc(d.queue, shell.Awaited):
		return Never
	default:
		return 0
	}
}

// write starts a write, or completes immediately if the data is already durable.
func (d *disk) write(x *shell.Saving) {
	if len(x.Saved) > 0 {
		d.p.persisted(x.Saved)
		return
	}
	if d.synced == nil {
		before := d.content
		before.entries = slices.Clip(before.entries)
		d.synced = &before
	}
	d.loose = append(d.loose, *x)
	d.append(x)
}

// append makes a write visible.
func (d *disk) append(x *shell.Saving) {
	if x.State != nil {
		d.hard = x.State
	}
	entries := x.Entries
	for len(entries) > 0 && entries[0].GetIndex() < d.first {
		entries = entries[1:]
	}
	if len(entries) == 0 {
		return
	}
	at := entries[0].GetIndex() - d.first
	if at > uint64(len(d.entries)) {
		panic(fmt.Sprintf("sim: append at %d leaves a gap after %d",
			entries[0].GetIndex(), d.first+uint64(len(d.entries))-1))
	}
	if at < uint64(len(d.entries)) {
		// Readers may still hold the old slice, so replaced entries are not overwritten in place.
		d.w.overwritten(d.entries[at:])
		d.entries = slices.Clip(d.entries[:at])
	}
	d.entries = append(d.entries, entries...)
}

// install replaces the log and the snapshot with a snapshot from another member.
func (d *disk) install(s *snapshot) {
	d.snap = *s
	if t, err := d.Term(s.index()); err == nil && t == s.meta.GetTerm() {
		d.compact(s.index())
	} else {
		d.first, d.before, d.entries = s.index()+1, s.meta.GetTerm(), nil
	}
	d.raise(s)
}

// normalize makes the hard state consistent with the snapshot when the disk is opened.
func (d *disk) normalize() {
	if d.snap.meta != nil {
		d.raise(&d.snap)
	}
}

// raise ensures that the hard state is at least as new as the snapshot about to become the newest.
func (c *content) raise(s *snapshot) {
	hard := &raftpb.HardState{Term: new(uint64), Commit: new(uint64), Vote: new(uint64)}
	if c.hard != nil {
		hard = proto.CloneOf(c.hard)
	}
	if hard.GetTerm() < s.meta.GetTerm() {
		hard.Term, hard.Vote = proto.Uint64(s.meta.GetTerm()), proto.Uint64(0)
	}
	hard.Commit = proto.Uint64(max(hard.GetCommit(), s.index()))
	c.hard = hard
}

// commit makes a snapshot of the member's own state the newest snapshot, and truncates the log up
// to keep. It returns false if a newer snapshot has arrived from another member. Only the snapshot
// is durable immediately; writes since the last sync can still be lost.
func (d *disk) commit(s snapshot, keep uint64) bool {
	if s.index() <= d.snap.index() {
		return false
	}
	if d.synced != nil {
		d.synced.commit(s, keep)
	}
	d.content.commit(s, keep)
	return true
}

func (c *content) commit(s snapshot, keep uint64) {
	c.snap = s
	c.raise(&s)
	c.compact(keep)
}

// compact truncates the log up to and including index.
func (c *content) compact(index uint64) {
	if index < c.first {
		return
	}
	t, err := c.Term(index)
	if err != nil {
		panic(fmt.Sprintf("sim: a snapshot is newer than the log that is synced: entry %d: %v",
			index, err))
	}
	n := index + 1 - c.first
	c.entries = append([]*raftpb.Entry(nil), c.entries[n:]...)
	c.first, c.before = index+1, t
}

// crash discards unsynced writes, except for a random number of the oldest.
func (d *disk) crash() {
	if d.synced != nil {
		loose := d.loose
		d.content = *d.synced
		for i := range loose {
			if d.full || d.w.chance(2) {
				if slices.ContainsFunc(loose[i:], func(x shell.Saving) bool { return len(x.Entries) > 0 }) {
					d.w.cover["crash lost unsynced entries"]++
				}
				break
			}
			d.append(&loose[i])
		}
	}
	if len(d.todo) > 0 && d.todo[0].Install != nil && d.w.chance(2) {
		d.durable(&d.todo[0])
	}
	d.stop()
}

// flush completes all pending work before a clean stop.
func (d *disk) flush() {
	d.plan()
	for i := range d.todo {
		switch x := &d.todo[i]; {
		case x.Install != nil:
			d.durable(x)
		case len(x.Saved) == 0:
			d.append(x)
		}
	}
	d.append(&shell.Saving{State: d.saver.Left()})
	d.stop()
}

// stop ends the process's use of the disk.
func (d *disk) stop() {
	d.incarnation++
	d.busy, d.queue, d.todo, d.synced, d.loose = false, nil, nil, nil, nil
}

// restore rebuilds the state from the newest snapshot.
func (d *disk) restore(c fsm.Config) *fsm.Machine {
	if d.snap.meta == nil {
		return fsm.New(c)
	}
	return d.snap.restore(c)
}

func (s *snapshot) restore(c fsm.Config) *fsm.Machine {
	if s.chunks == nil {
		s.encode()
	}
	i := 0
	m, err := fsm.Restore(c, func() ([]byte, bool, error) {
		if i == len(s.chunks) {
			return nil, false, nil
		}
		i++
		return s.chunks[i-1], true, nil
	})
	if err != nil {
		panic(fmt.Sprintf("sim: restore a snapshot: %v", err))
	}
	return m
}

// picture returns a snapshot that contains image.
func picture(image *fsm.Image, conf *raftpb.ConfState) snapshot {
	return snapshot{image: image, meta: &raftpb.SnapshotMetadata{
		Index: &image.View.Index, Term: &image.View.Term, ConfState: conf,
	}}
}

// encode writes the image.
func (s *snapshot) encode() {
	err := s.image.Encode(func(chunk []byte) error {
		s.chunks = append(s.chunks, append([]byte(nil), chunk...))
		return nil
	})
	if err != nil {
		panic(fmt.Sprintf("sim: write a snapshot: %v", err))
	}
	s.image = nil
}

// Methods of raft.Storage.

var _ raft.Storage = (*disk)(nil)

func (d *disk) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	conf := d.snap.meta.GetConfState()
	if conf == nil {
		conf = &raftpb.ConfState{}
	}
	return d.hard, conf, nil
}

func (c *content) FirstIndex() (uint64, error) { return c.first, nil }
func (c *content) LastIndex() (uint64, error)  { return c.last(), nil }
func (c *content) last() uint64                { return c.first + uint64(len(c.entries)) - 1 }

func (c *content) Term(i uint64) (uint64, error) {
	switch {
	case i+1 == c.first:
		return c.before, nil
	case i+1 < c.first:
		return 0, raft.ErrCompacted
	case i > c.last():
		return 0, raft.ErrUnavailable
	default:
		return c.entries[i-c.first].GetTerm(), nil
	}
}

func (d *disk) Entries(lo, hi, maxSize uint64) ([]*raftpb.Entry, error) {
	switch {
	case lo < d.first:
		return nil, raft.ErrCompacted
	case hi > d.last()+1:
		return nil, raft.ErrUnavailable
	}
	part := d.entries[lo-d.first : hi-d.first : hi-d.first]
	size := uint64(0)
	for i, e := range part {
		size += uint64(len(e.GetData())) + 16
		if size > maxSize && i > 0 {
			return part[:i:i], nil
		}
	}
	return part, nil
}

func (d *disk) Snapshot() (*raftpb.Snapshot, error) {
	if d.snap.meta == nil {
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	return &raftpb.Snapshot{Metadata: d.snap.meta}, nil
}
