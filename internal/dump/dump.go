package dump

import (
	"errors"
	"fmt"
	"io"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"leasehold.dev/internal/backup"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/storage"
)

// Options select the parts of a data directory to print.
type Options struct {
	// From and To are the first and last log entry to print. If To is 0, printing continues to the
	// end of the log.
	From, To uint64
	// Snapshot includes the records of the snapshot.
	Snapshot bool
}

// Backup prints the records of a backup. It returns an error if any part could not be read. The
// error is an encoding.ErrNewer if a newer release wrote that part.
func Backup(w io.Writer, r io.Reader) error {
	b, err := backup.NewReader(r)
	if err != nil {
		return err
	}
	p := newPrinter(w)
	var s fsm.Scanner
	reported := false
	for {
		chunk, more, err := b.Next()
		at := fmt.Sprintf("byte %d", b.At())
		if !reported && (err == nil || errors.Is(err, backup.ErrChunk)) {
			p.record("backup", struct {
				Version string
				Cluster uint64
			}{backup.Version, b.Cluster()})
			reported = true
		}
		switch {
		case errors.Is(err, backup.ErrChunk):
			s.Lost()
			p.problem(at, err)
		case err != nil:
			p.problem(at, err)
			return p.end()
		case !more:
			p.problem(at, s.End())
			p.problem(at, b.Finish(true))
			return p.end()
		default:
			p.chunk(&s, at, chunk)
		}
		if p.failed != nil {
			return p.failed
		}
	}
}

// chunk prints the records in one chunk of a snapshot.
func (p *printer) chunk(s *fsm.Scanner, at string, chunk []byte) {
	for r, err := range s.Records(chunk) {
		if err != nil {
			p.problem(at, err)
			return
		}
		p.record(r.Kind, r.Value)
	}
}

// Directory prints the records of a stopped member's data directory, without changing it. It
// returns the same errors as Backup, and storage.ErrLocked if the member is running.
func Directory(w io.Writer, dir string, o Options) error {
	p := newPrinter(w)
	var s fsm.Scanner
	want := storage.Wanted{From: o.From, To: o.To, Chunks: o.Snapshot}
	chunks := false
	err := storage.Inspect(storage.Config{Dir: dir}, want, func(r storage.Record) error {
		switch v := r.Value.(type) {
		case storage.LogEntry:
			if chunks {
				p.problem("snapshot", s.End())
				chunks = false
			}
			p.entry(v)
		case storage.Chunk:
			chunks = true
			p.chunk(&s, fmt.Sprintf("chunk %d", v.Number), v.Data)
		default:
			if r.Err != nil {
				p.problem(r.Kind, r.Err)
			} else {
				p.record(r.Kind, v)
			}
		}
		return p.failed
	})
	if err != nil {
		return err
	}
	if chunks {
		p.problem("snapshot", s.End())
	}
	return p.end()
}

// entry is the printable form of a log entry.
type entry struct {
	Index, Term uint64
	Type        word
	Version     byte // version of the commands
	Bytes       int
	Changes     []change
	Groups      []fsm.Group
}

// entry prints a log entry and its commands.
func (p *printer) entry(e storage.LogEntry) {
	v := entry{Index: e.Index, Term: e.Term, Type: "commands", Bytes: len(e.Data)}
	data, err := e.Data, error(nil)
	switch {
	case e.Type != raftpb.EntryNormal:
		v.Type = "members"
		v.Changes, data, err = changesOf(e)
	case len(data) == 0:
		v.Type = "empty"
	}
	if len(data) > 0 && err == nil {
		v.Version = data[0]
		v.Groups, err = fsm.DecodeEntry(data)
	}
	p.record("entry", v)
	p.problem(fmt.Sprintf("entry %d", e.Index), err)
}

// change is one change to Raft's membership.
type change struct {
	Type   word
	Member uint64
}

// changesOf returns the changes that an entry makes to Raft's membership, and the entry's encoded
// commands.
func changesOf(e storage.LogEntry) (out []change, data []byte, err error) {
	c, v1 := &raftpb.ConfChangeV2{}, &raftpb.ConfChange{}
	if e.Type == raftpb.EntryConfChangeV2 {
		err = proto.Unmarshal(e.Data, c)
	} else if err = proto.Unmarshal(e.Data, v1); err == nil {
		c = v1.AsV2()
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%w: membership change: %v", storage.ErrCorrupt, err)
	}
	for _, x := range c.GetChanges() {
		out = append(out, change{word(x.GetType().String()), x.GetNodeId()})
	}
	return out, c.GetContext(), nil
}
