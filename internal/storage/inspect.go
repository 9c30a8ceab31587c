package storage

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"go.etcd.io/raft/v3/raftpb"
)

// A Record is one record of a data directory, or what is wrong in its place.
type Record struct {
	// Kind is the record's name, as docs/formats.md has it.
	Kind string
	// Value is a struct of what it has: an [Identity], [Peers], [LogEntry], [Chunk] or another.
	Value any
	// Err is why it cannot be read. Value is nil then.
	Err error
}

// LogEntry is an entry of the log.
type LogEntry struct {
	Index, Term uint64
	Type        raftpb.EntryType
	Data        []byte
}

// HardState is what the member has promised to Raft, and how far it knows the log as committed.
type HardState struct{ Term, Vote, Commit uint64 }

// Chunk is a piece of the newest snapshot.
type Chunk struct {
	Number uint32
	Data   []byte
}

// Wanted says which records Inspect looks for, beside the few that each directory has.
type Wanted struct {
	// From and To are the first and the last index of the entries; To 0 is the log's end.
	From, To uint64
	// Chunks asks for those of the snapshot.
	Chunks bool
}

// Inspect passes every record of a stopped member's data directory to visit, in this order: the
// damage of the log, the single records, the snapshot's chunks, the log's entries. It changes
// nothing, and keeps the directory from being opened meanwhile. It reads all that is sound, also
// after damage. The error is ErrLocked if the directory is in use, ErrForeign if it is none of a
// member, or visit's, after which Inspect returns.
func Inspect(cfg Config, want Wanted, visit func(Record) error) error {
	d, err := newDisk(cfg)
	if err != nil {
		return err
	}
	lock, err := d.fs.Lock(d.path(lockFile), true)
	if err != nil {
		return fmt.Errorf("%s: %w", cfg.Dir, err)
	}
	defer ignoreClose(lock)
	i := &inspection{Disk: d, want: want, visit: visit}
	if i.inv, err = d.inventory(); err != nil {
		f, none := d.fs.Open(d.identityPath())
		if none != nil {
			return fmt.Errorf("%w: there is no directory %s", ErrForeign, d.path(""))
		}
		ignoreClose(f)
		i.report("log", nil, fmt.Errorf("%w: %w", ErrCorrupt, err))
	}
	i.all()
	return i.stopped
}

func ignoreClose(c io.Closer) { _ = c.Close() }

// inspection is one call of Inspect. Once visit has failed, nothing more is passed to it.
type inspection struct {
	*Disk
	inv     inventory
	want    Wanted
	visit   func(Record) error
	stopped error // of visit
	entries []entryRef
	image   image // of the segment read last
}

// entryRef is where an entry is: the record of a number in a frame.
type entryRef struct {
	index, segment uint64
	at             int64
	record         int
}

func (i *inspection) report(kind string, value any, err error) {
	if i.stopped != nil {
		return
	}
	if err != nil {
		value = nil
	}
	i.stopped = i.visit(Record{Kind: kind, Value: value, Err: err})
}

func (i *inspection) all() {
	idErr := i.loadIdentity()
	if idErr == nil {
		i.damage()
	}
	i.salvage()
	if idErr != nil || i.bootstrapped {
		i.report("identity", i.identity, idErr)
	}
	if idErr == nil && i.bootstrapped {
		i.report("bootstrap", votersOf(i.conf), nil)
	}
	if len(i.inv.segments) == 0 {
		return
	}
	i.report("compaction mark", struct{ Index, Term, Segment uint64 }{
		i.mark.index, i.mark.term, i.mark.segment,
	}, nil)
	if h := i.hard; h != nil {
		i.report("hard state", HardState{h.GetTerm(), h.GetVote(), h.GetCommit()}, nil)
	}
	i.report("peers", i.peers, nil)
	if m := i.snap; m.index > 0 {
		i.report("snapshot", struct {
			Index, Term, Chunks, Bytes uint64
			Checksum                   uint32
			Members                    group
		}{m.index, m.term, m.chunks, m.bytes, m.sum, votersOf(m.conf)}, nil)
		if i.want.Chunks {
			i.chunks()
		}
	}
	for _, e := range i.entries {
		if e.index > i.mark.index && e.index >= i.want.From && (i.want.To == 0 || e.index <= i.want.To) {
			i.entry(e)
		}
	}
}

// damage reports why no member could open the directory.
func (i *inspection) damage() {
	if !i.bootstrapped {
		if err := i.lostIdentity(&i.inv); err != nil {
			i.report("identity", nil, classify(err))
		}
		return
	}
	d := &Disk{cfg: i.cfg, fs: i.fs, logger: i.logger}
	d.identity, d.bootstrapped, d.log.tailMax = i.identity, i.bootstrapped, 1
	d.log.reset(position{})
	_, _, err := d.loadLog(&i.inv)
	if err == nil {
		err = d.check()
	}
	if err != nil {
		i.report("log", nil, classify(err))
	}
}

// salvage takes in every whole frame.
func (i *inspection) salvage() {
	for _, number := range i.inv.segments {
		if !i.open(number) {
			continue
		}
		for at := int64(0); at+blockBytes <= i.image.end(); at += blockBytes {
			f, ok := i.image.frame(at)
			if !ok {
				continue
			}
			at += f.size - blockBytes
			n := 0
			err := records(f.payload, func(r record) error { n++; return i.take(f, n-1, r) })
			if err != nil {
				i.report("log", nil, fmt.Errorf("%s at byte %d: %w", i.image.name, f.at, err))
			}
		}
	}
}

// open reads a segment into i.image. That it cannot be read is reported by damage.
func (i *inspection) open(number uint64) bool {
	if i.image.number == number {
		return true
	}
	i.image = image{name: i.path(segmentName(number)), number: number}
	f, err := i.fs.Open(i.image.name)
	if err == nil {
		i.image.b, err = readAll(f)
	}
	i.image.b = i.image.b[:len(i.image.b)/blockBytes*blockBytes]
	return err == nil
}

// take takes in a record as loader does, but does not mind gaps.
func (i *inspection) take(f frame, number int, r record) error {
	switch r.kind {
	case kindEntry:
		e, err := decodeEntry(r.body)
		if err != nil {
			return err
		}
		n := len(i.entries)
		for n > 0 && i.entries[n-1].index >= e.GetIndex() {
			n--
		}
		i.entries = append(i.entries[:n], entryRef{e.GetIndex(), f.segment, f.at, number})
	case kindReset:
		i.entries = nil
		var err error
		i.mark, err = decodeMark(r.body)
		return err
	case kindSealed:
	default:
		return (&loader{Disk: i.Disk}).record(f, r)
	}
	return nil
}

// entry reports an entry.
func (i *inspection) entry(e entryRef) {
	if i.stopped != nil || !i.open(e.segment) {
		return
	}
	f, _ := i.image.frame(e.at)
	n := 0
	err := records(f.payload, func(r record) error {
		if n++; n-1 != e.record {
			return nil
		}
		x, err := decodeEntry(r.body)
		i.report("entry", LogEntry{x.GetIndex(), x.GetTerm(), x.GetType(), x.GetData()}, err)
		return nil
	})
	if err != nil {
		i.report("entry", nil, err)
	}
}

// chunks reports those of the snapshot.
func (i *inspection) chunks() {
	r, err := openSnapshot(i.fs, i.path(i.snap.name()), i.snap)
	if errors.Is(err, fs.ErrNotExist) {
		return // reported by damage
	}
	if err != nil {
		i.report("chunk", nil, classify(err))
		return
	}
	defer ignoreClose(r)
	for n := uint32(0); ; n++ {
		chunk, err := r.Next()
		if errors.Is(err, io.EOF) || i.stopped != nil {
			return
		}
		i.report("chunk", Chunk{n, chunk}, err)
		if err != nil {
			return
		}
	}
}

// group is a raftpb.ConfState without what goes with protobuf.
type group struct {
	Voters, Outgoing, Learners, LearnersNext []uint64
	AutoLeave                                bool
}

func votersOf(c *raftpb.ConfState) group {
	return group{
		c.GetVoters(), c.GetVotersOutgoing(), c.GetLearners(), c.GetLearnersNext(), c.GetAutoLeave(),
	}
}
