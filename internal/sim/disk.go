package sim

import (
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"leasehold.dev/internal/fsm"
)

// content is what a disk holds: a log behind a snapshot.
type content struct {
	hard    *raftpb.HardState
	first   uint64 // index of entries[0]; 1 on an empty disk
	before  uint64 // term of the entry before that
	entries []*raftpb.Entry
	snap    snapshot
}

// snapshot is one on a disk, or on its way between two. It is written when it is read
// first, since most never are.
type snapshot struct {
	meta   *raftpb.SnapshotMetadata // nil for none
	image  *fsm.Image
	chunks [][]byte
}

func (s *snapshot) index() uint64 { return s.meta.GetIndex() }

// disk is one member's. An append is atomic. It becomes visible, through raft.Storage,
// and durable when its sync has ended; a crash in between leaves some of those that
// were under way, from the oldest on, each whole.
type disk struct {
	content
	w     *world
	queue []write
	spare []write // memory to use again
	busy  bool
	group int // how many of the queue share the sync under way
	life  int // of the process that writes
	began Time

	slow  Time // how much longer a sync takes
	stuck Time // no sync ends before
	full  bool // no append begins
}

// write is one append on its way to the disk.
type write struct {
	m    *raftpb.Message
	snap *snapshot // that takes the place of state and log
	done func()
	// early says that it was acknowledged before it is durable (plantAckBeforeSync);
	// before is what was on the disk then.
	early  bool
	before *content
}

// lazy reports whether an append need not be durable, and nobody waits for it: most
// commit indexes are.
func (x *write) lazy() bool {
	return len(x.m.GetEntries())+len(x.m.GetResponses()) == 0 && x.snap == nil && !x.early
}

// founded returns the disk of a founding member.
func founded(w *world, first snapshot) *disk {
	one := uint64(1)
	return &disk{w: w, content: content{
		first: 2, before: 1, snap: first,
		hard: &raftpb.HardState{Term: &one, Commit: &one, Vote: new(uint64)},
	}}
}

// put takes an append of the running process. done is called when it is durable.
func (d *disk) put(x write) {
	snaps := x.snap != nil || slices.ContainsFunc(d.queue, func(q write) bool { return q.snap != nil })
	if d.w.opt.Plant == plantAckBeforeSync && !snaps {
		before := d.content
		x.early, x.before = true, &before
		d.write(&x)
		x.done()
		x.done = func() {}
	}
	if len(d.queue) == 0 && !d.full && d.stuck <= d.w.now && x.lazy() {
		d.write(&x)
		return
	}
	d.queue = append(d.queue, x)
	d.next()
}

// next begins the next writes: all that have gathered share a sync, but for a
// snapshot, which has its own.
func (d *disk) next() {
	if d.busy || len(d.queue) == 0 || d.full {
		return
	}
	w, life := d.w, d.life
	d.busy, d.began = true, w.now
	end := w.now // if they carry a commit index, which need not be durable
	d.group = 0
	for _, x := range d.queue {
		if x.snap != nil && d.group > 0 {
			break
		}
		d.group++
		if !x.lazy() && end == w.now {
			end = w.now + 50 + w.exp(w.p.Sync) + d.slow
		}
		if x.snap != nil {
			break
		}
	}
	d.finish(max(end, d.stuck), life)
}

func (d *disk) finish(at Time, life int) {
	d.w.at(at, func() {
		if d.life != life {
			return
		}
		if d.stuck > d.w.now { // it got stuck on the way
			d.finish(d.stuck, life)
			return
		}
		group := d.queue[:d.group:d.group]
		d.queue = append(d.spare, d.queue[d.group:]...)
		d.spare, d.busy = nil, false
		for i := range group {
			if !group[i].early {
				d.write(&group[i])
			}
			group[i].done()
		}
		clear(group)
		d.spare = group[:0]
		d.next()
	})
}

// stall reports for how long the write under way has taken.
func (d *disk) stall() Time {
	switch {
	case d.busy:
		return d.w.now - d.began
	case d.full && len(d.queue) > 0:
		return Never
	default:
		return 0
	}
}

// write makes an append visible.
func (d *disk) write(x *write) {
	if x.snap != nil {
		d.install(x.snap)
	}
	if m := x.m; m.Term != nil || m.Vote != nil || m.Commit != nil {
		d.hard = &raftpb.HardState{Term: m.Term, Vote: m.Vote, Commit: m.Commit}
	}
	entries := x.m.GetEntries()
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
		d.w.overwritten(d.entries[at:])
	}
	// Readers may hold the old slice, so what is replaced is not written over.
	if at < uint64(len(d.entries)) || x.early {
		d.entries = append(d.entries[:at:at], entries...)
		return
	}
	d.entries = append(d.entries, entries...)
}

// install puts a snapshot from another member in the place of log and snapshot.
func (d *disk) install(s *snapshot) {
	d.snap = *s
	if t, err := d.Term(s.index()); err == nil && t == s.meta.GetTerm() {
		d.compact(s.index())
	} else {
		d.first, d.before, d.entries = s.index()+1, s.meta.GetTerm(), nil
	}
	d.raise(s)
}

// normalize makes the hard state agree with the snapshot, when the disk is opened.
func (d *disk) normalize() {
	if d.snap.meta != nil {
		d.raise(&d.snap)
	}
}

// raise makes the hard state at least as new as a snapshot, in the step in which that
// becomes the newest.
func (d *disk) raise(s *snapshot) {
	hard := &raftpb.HardState{Term: new(uint64), Commit: new(uint64), Vote: new(uint64)}
	if d.hard != nil {
		hard = proto.CloneOf(d.hard)
	}
	if hard.GetTerm() < s.meta.GetTerm() {
		hard.Term, hard.Vote = proto.Uint64(s.meta.GetTerm()), proto.Uint64(0)
	}
	hard.Commit = proto.Uint64(max(hard.GetCommit(), s.index()))
	d.hard = hard
}

// commit makes a snapshot of the member's own state the newest, and drops the log
// up to keep.
func (d *disk) commit(s snapshot, keep uint64) {
	if s.index() <= d.snap.index() {
		return // another member's was newer
	}
	d.snap = s
	d.raise(&s)
	d.compact(keep)
}

// compact drops the log up to and including index.
func (d *disk) compact(index uint64) {
	if index < d.first {
		return
	}
	t, err := d.Term(index)
	if err != nil {
		panic(fmt.Sprintf("sim: compact to %d: %v", index, err))
	}
	n := index + 1 - d.first
	d.entries = append([]*raftpb.Entry(nil), d.entries[n:]...)
	d.first, d.before = index+1, t
}

// crash loses the writes under way but for a random number of the oldest.
func (d *disk) crash() {
	d.life++
	d.busy = false
	if len(d.queue) > 0 && d.queue[0].early {
		d.content = *d.queue[0].before
		d.w.cover["crash after an early acknowledgement"]++
	}
	for i := range d.queue {
		if d.full || d.w.chance(2) {
			if len(d.queue[i].m.GetEntries()) > 0 {
				d.w.cover["crash lost unsynced entries"]++
			}
			break
		}
		d.write(&d.queue[i])
	}
	d.queue = nil
}

// flush finishes what is under way, for a clean stop.
func (d *disk) flush() {
	d.life++
	d.busy = false
	for i := range d.queue {
		if !d.queue[i].early {
			d.write(&d.queue[i])
		}
	}
	d.queue = nil
}

// restore builds the state of the newest snapshot.
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

// picture returns image as a snapshot.
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

// The methods of raft.Storage.

var _ raft.Storage = (*disk)(nil)

func (d *disk) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	conf := d.snap.meta.GetConfState()
	if conf == nil {
		conf = &raftpb.ConfState{}
	}
	return d.hard, conf, nil
}

func (d *disk) FirstIndex() (uint64, error) { return d.first, nil }
func (d *disk) LastIndex() (uint64, error)  { return d.last(), nil }
func (d *disk) last() uint64                { return d.first + uint64(len(d.entries)) - 1 }

func (d *disk) Term(i uint64) (uint64, error) {
	switch {
	case i+1 == d.first:
		return d.before, nil
	case i+1 < d.first:
		return 0, raft.ErrCompacted
	case i > d.last():
		return 0, raft.ErrUnavailable
	default:
		return d.entries[i-d.first].GetTerm(), nil
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
