package storage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
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

// Inspect hands every record of a stopped member's data directory to visit, in this order: the
// ledger, the single records, the snapshot's chunks, the log's entries. It changes nothing, and
// keeps the directory from being opened meanwhile. Damage is told to visit, in its place, and what
// is sound after it is read all the same. The error is ErrLocked if the directory is in use,
// ErrForeign if it is none of a member, or visit's, after which Inspect returns.
func Inspect(cfg Config, want Wanted, visit func(Record) error) error {
	if cfg.FS == nil {
		cfg.FS = vfs.Default
	}
	cfg.CacheBytes, cfg.Logger = defaultCacheBytes, slog.New(slog.DiscardHandler)
	d := &Disk{cfg: cfg, fs: readOnly{cfg.FS}, dir: cfg.FS.PathJoin(cfg.Dir, "db"), logger: cfg.Logger}
	if info, err := cfg.FS.Stat(d.dir); errors.Is(err, fs.ErrNotExist) || err == nil && !info.IsDir() {
		return fmt.Errorf("%w: there is no directory %s", ErrForeign, d.dir)
	} else if err != nil {
		return err
	}
	lock, err := lockToRead(cfg.FS, cfg.FS.PathJoin(d.dir, "LOCK"))
	if err != nil {
		return fmt.Errorf("%s: %w", cfg.Dir, err)
	}
	defer ignoreClose(lock)
	d.guard = newGuard(d.fs, func() bool { return false })
	defer d.guard.abandon()
	i := &inspection{Disk: d, want: want, visit: visit}
	if err := d.run(i.all); i.stopped == nil && err != nil {
		return visit(Record{Kind: "database", Err: err})
	}
	return i.stopped
}

// inspection is one call of Inspect.
type inspection struct {
	*Disk
	want    Wanted
	visit   func(Record) error
	stopped error // of visit
}

// errStopped means that visit wants no more.
var errStopped = errors.New("storage: stopped")

func (i *inspection) tell(r Record) error {
	if r.Err != nil {
		r.Value = nil
	}
	if i.stopped = i.visit(r); i.stopped != nil {
		return errStopped
	}
	return nil
}

func (i *inspection) all() error {
	if err := i.files(); err != nil {
		return err
	}
	cache := pebble.NewCache(i.cfg.CacheBytes)
	defer cache.Unref()
	o := i.options(cache)
	o.ReadOnly = true
	db, err := pebble.Open(i.dir, o)
	if err != nil {
		return err
	}
	defer ignoreClose(db)
	spans := [][2][]byte{{nil, keyEntries}, {keyEntriesEnd, keyChunks}, {keyManifest, nil}}
	if i.want.Chunks {
		spans = append(spans, [2][]byte{keyChunks, keyManifest})
	}
	to := keyEntriesEnd
	if n := i.want.To; n > 0 && n < math.MaxUint64 {
		to = entryKey(n + 1)
	}
	for _, span := range append(spans, [2][]byte{entryKey(i.want.From), to}) {
		if err := i.span(db, span[0], span[1]); err != nil {
			return err
		}
	}
	return nil
}

// files tells of the ledger, and of Pebble's files that are not what it says.
func (i *inspection) files() error {
	l := &ledger{guard: i.guard, name: i.fs.PathJoin(i.cfg.Dir, "ledger")}
	file, err := i.fs.Open(l.name)
	if err == nil {
		l.file = file
		err = l.load()
		_ = file.Close()
	}
	type line struct {
		Name   string
		Synced int64
	}
	var lines []line
	for _, x := range l.lines {
		lines = append(lines, line{x.name, x.end})
	}
	err = i.tell(Record{Kind: "ledger", Err: err, Value: struct {
		Number uint64
		Files  []line
	}{l.seq, lines}})
	if err != nil {
		return err
	}
	if err := errors.Join(i.checkLogs(l.lines), i.checkMarker()); err != nil {
		return i.tell(Record{Kind: "database", Err: err})
	}
	return nil
}

// span tells of the records whose keys are in a range.
func (i *inspection) span(db *pebble.DB, from, to []byte) error {
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return err
	}
	defer ignoreClose(it)
	for it.First(); it.Valid(); it.Next() {
		if err := i.tell(inspect(it.Key(), it.Value())); err != nil {
			return err
		}
	}
	if err := it.Error(); err != nil { // the other ranges may be sound
		return i.tell(Record{Kind: "database", Err: classify(err)})
	}
	return nil
}

// inspect decodes one record of the database.
func inspect(key, rec []byte) (r Record) {
	switch {
	case bytes.HasPrefix(key, keyEntries):
		e, err := decodeEntry(rec, key)
		if err != nil {
			return Record{Kind: "entry", Err: err}
		}
		return Record{Kind: "entry", Value: LogEntry{
			e.GetIndex(), e.GetTerm(), e.GetType(), e.GetData(),
		}}
	case bytes.HasPrefix(key, keyChunks) && len(key) == chunkKeyLen:
		p, err := open(rec, chunkVersion, key)
		if err != nil {
			return Record{Kind: "chunk", Err: err}
		}
		return Record{Kind: "chunk", Value: Chunk{binary.BigEndian.Uint32(key[9:]), p}}
	}
	return inspectSingle(key, rec)
}

// inspectSingle decodes a record of which there is one.
func inspectSingle(key, rec []byte) (r Record) {
	switch string(key) {
	case string(keyConf):
		r.Kind = "bootstrap"
		var c *raftpb.ConfState
		c, r.Err = decodeConf(rec)
		r.Value = votersOf(c)
	case string(keyMark):
		r.Kind = "compaction mark"
		var p position
		p, r.Err = decodeMark(rec)
		r.Value = struct{ Index, Term uint64 }{p.index, p.term}
	case string(keyHard):
		r.Kind = "hard state"
		var h *raftpb.HardState
		h, r.Err = decodeHardState(rec)
		r.Value = HardState{h.GetTerm(), h.GetVote(), h.GetCommit()}
	case string(keyIdentity):
		r.Kind = "identity"
		r.Value, r.Err = decodeIdentity(rec)
	case string(keyPeers):
		r.Kind = "peers"
		r.Value, r.Err = decodePeers(rec)
	case string(keyManifest):
		r.Kind = "snapshot"
		var m manifest
		m, r.Err = decodeManifest(rec)
		r.Value = struct {
			Index, Term, Chunks, Bytes uint64
			Checksum                   uint32
			Members                    group
		}{m.index, m.term, m.chunks, m.bytes, m.sum, votersOf(m.conf)}
	default:
		r.Kind = "record"
		r.Err = fmt.Errorf("%w: a record with the key %q", ErrVersion, key)
	}
	return r
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

// readOnly is a file system that nothing changes.
type readOnly struct{ vfs.FS }

var errReadOnly = errors.New("storage: opened for reading only")

// Create implements vfs.FS.
func (readOnly) Create(string, vfs.DiskWriteCategory) (vfs.File, error) { return nil, errReadOnly }

// OpenReadWrite implements vfs.FS.
func (readOnly) OpenReadWrite(
	string, vfs.DiskWriteCategory, ...vfs.OpenOption,
) (vfs.File, error) {
	return nil, errReadOnly
}

// ReuseForWrite implements vfs.FS.
func (readOnly) ReuseForWrite(string, string, vfs.DiskWriteCategory) (vfs.File, error) {
	return nil, errReadOnly
}

// Link implements vfs.FS.
func (readOnly) Link(string, string) error { return errReadOnly }

// Remove implements vfs.FS.
func (readOnly) Remove(string) error { return errReadOnly }

// RemoveAll implements vfs.FS.
func (readOnly) RemoveAll(string) error { return errReadOnly }

// Rename implements vfs.FS.
func (readOnly) Rename(string, string) error { return errReadOnly }

// MkdirAll implements vfs.FS.
func (readOnly) MkdirAll(string, os.FileMode) error { return errReadOnly }
