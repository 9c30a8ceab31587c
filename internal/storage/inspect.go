package storage

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"go.etcd.io/raft/v3/raftpb"
)

// A Record is one record of a data directory, or an error in its place.
type Record struct {
	// Kind is the record's name in docs/formats.md.
	Kind string
	// Value is a struct with the record's content: an [Identity], [Peers], [LogEntry], [Chunk] or
	// another type.
	Value any
	// Err is the reason why the record cannot be read. If it is set, Value is nil.
	Err error
}

// LogEntry is an entry of the log.
type LogEntry struct {
	Index, Term uint64
	Type        raftpb.EntryType
	Data        []byte
}

// HardState is the member's term and vote, and the index of the last entry that it knows to be
// committed.
type HardState struct{ Term, Vote, Commit uint64 }

// Chunk is a piece of the newest snapshot.
type Chunk struct {
	Number uint32
	Data   []byte
}

// Wanted selects the records for Inspect, in addition to the few that every directory has.
type Wanted struct {
	// From and To are the indexes of the first and last entry. If To is 0, the range extends to the
	// end of the log.
	From, To uint64
	// Chunks selects the chunks of the snapshot.
	Chunks bool
}

// Inspect passes every record of a stopped member's data directory to visit, in this order: damage
// to the log, single records, the snapshot's chunks, the log's entries. It changes nothing, and
// prevents other processes from opening the directory while it runs. Even if there is damage, it
// reads everything that is intact. It returns ErrLocked if the directory is in use, and ErrForeign
// if the directory does not belong to a member. If visit returns an error, Inspect stops and
// returns that error.
func Inspect(cfg Config, want Wanted, visit func(Record) error) error {
	d, err := newDisk(cfg)
	if err != nil {
		return err
	}
	d.fs = readOnly{d.fs}
	if d.lock, err = d.fs.Lock(d.path(lockFile), true); err != nil {
		return fmt.Errorf("%s: %w", cfg.Dir, err)
	}
	defer func() { _ = d.release() }()
	i := &inspection{Disk: d, want: want, visit: visit}
	inv, err := d.inventory()
	if err != nil {
		f, none := d.fs.Open(d.identityPath())
		if none != nil {
			return fmt.Errorf("%w: directory %s does not exist", ErrForeign, d.path(""))
		}
		ignoreClose(f)
		i.report("log", nil, fmt.Errorf("%w: %w", ErrCorrupt, err))
	}
	i.all(&inv)
	return i.stopped
}

// inspection is the state of one call of Inspect. Once visit has failed, it is not called again.
type inspection struct {
	*Disk
	want    Wanted
	visit   func(Record) error
	stopped error // error returned by visit
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

func (i *inspection) all(inv *inventory) {
	idErr := i.loadIdentity()
	switch {
	case idErr != nil:
		i.salvage(inv.segments)
	case i.bootstrapped:
		if _, err := i.loadAll(inv.segments); err != nil {
			i.report("log", nil, classify(err))
			i.salvage(inv.segments)
		}
	default:
		if err := i.lostIdentity(inv); err != nil {
			i.report("identity", nil, classify(err))
			i.salvage(inv.segments)
		}
	}
	if idErr != nil || i.bootstrapped {
		i.report("identity", i.identity, idErr)
	}
	if idErr == nil && i.bootstrapped {
		i.report("bootstrap", votersOf(i.conf), nil)
	}
	if len(inv.segments) == 0 {
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
	i.entries()
}

// salvage loads every complete frame of all segments. It skips anything between the frames.
func (i *inspection) salvage(numbers []uint64) {
	i.small = small{}
	i.log.reset(position{})
	l := loader{Disk: i.Disk, gaps: true}
	for _, number := range numbers {
		s, err := i.openSegment(number)
		if err != nil { // already reported
			continue
		}
		i.segments = append(i.segments, s.segment)
		for at := int64(0); at+blockBytes <= s.image.end(); at += blockBytes {
			f, ok := s.image.frame(at)
			if !ok {
				continue
			}
			at += f.size - blockBytes
			if err := l.frame(s.segment, &f); err != nil {
				i.report("log", nil, fmt.Errorf("%s at byte %d: %w", s.image.name, f.at, err))
			}
		}
	}
}

// entries reports the entries of the log.
func (i *inspection) entries() {
	from, to := max(i.mark.index+1, i.want.From), i.log.last
	if i.want.To > 0 {
		to = min(to, i.want.To)
	}
	for n, p := range i.log.places {
		last := to
		if n+1 < len(i.log.places) {
			last = min(to, i.log.places[n+1].index-1)
		}
		if i.stopped != nil || from > last {
			continue
		}
		err := i.readPlace(p, func(e *raftpb.Entry) {
			if at := e.GetIndex(); from <= at && at <= last {
				i.report("entry", LogEntry{at, e.GetTerm(), e.GetType(), e.GetData()}, nil)
			}
		})
		if err != nil {
			i.report("entry", nil, err)
		}
	}
}

// chunks reports the chunks of the snapshot.
func (i *inspection) chunks() {
	r, err := i.OpenSnapshot()
	if errors.Is(err, fs.ErrNotExist) {
		return // already reported
	}
	if err != nil {
		i.report("chunk", nil, err)
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

// group is a raftpb.ConfState without the protobuf fields.
type group struct {
	Voters, Outgoing, Learners, LearnersNext []uint64
	AutoLeave                                bool
}

func votersOf(c *raftpb.ConfState) group {
	return group{
		c.GetVoters(), c.GetVotersOutgoing(), c.GetLearners(), c.GetLearnersNext(), c.GetAutoLeave(),
	}
}
