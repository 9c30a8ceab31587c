package storage

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// Every kind of record has its own version, so that one can change alone.
const (
	entryVersion     = 1
	hardStateVersion = 1
	identityVersion  = 1
	markVersion      = 1
	confVersion      = 1
	chunkVersion     = 1
	manifestVersion  = 1
	peersVersion     = 1

	headerLen = 5
)

// Snapshot keys come last, so that no table file of the log spans them and
// replacing a snapshot never has to rewrite one.
const (
	prefixConf     = 'b'
	prefixMark     = 'c'
	prefixHard     = 'h'
	prefixIdentity = 'i'
	prefixEntry    = 'l'
	prefixPeers    = 'p'
	prefixChunk    = 's'
	prefixManifest = 't'
)

var (
	keyConf     = []byte{prefixConf}
	keyMark     = []byte{prefixMark}
	keyHard     = []byte{prefixHard}
	keyIdentity = []byte{prefixIdentity}
	keyManifest = []byte{prefixManifest}
	keyPeers    = []byte{prefixPeers}

	keyEntries    = []byte{prefixEntry}
	keyEntriesEnd = []byte{prefixEntry + 1}
	keyChunks     = []byte{prefixChunk}
	keyChunksEnd  = []byte{prefixManifest + 1} // the manifest included
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const (
	entryKeyLen = 1 + 8
	chunkKeyLen = 1 + 8 + 4
)

func entryKey(index uint64) []byte {
	return putEntryKey(make([]byte, entryKeyLen), index)
}

func putEntryKey(b []byte, index uint64) []byte {
	b[0] = prefixEntry
	binary.BigEndian.PutUint64(b[1:], index)
	return b
}

// parseEntryKey returns the index of an entry's key.
func parseEntryKey(key []byte) (uint64, error) {
	if len(key) != entryKeyLen || key[0] != prefixEntry {
		return 0, fmt.Errorf("%w: log key %x", ErrCorrupt, key)
	}
	return binary.BigEndian.Uint64(key[1:]), nil
}

func chunkKey(index uint64, number uint32) []byte {
	b := make([]byte, chunkKeyLen)
	b[0] = prefixChunk
	binary.BigEndian.PutUint64(b[1:], index)
	binary.BigEndian.PutUint32(b[9:], number)
	return b
}

// seal fills in the header of a record whose payload begins at rec[headerLen].
func seal(rec []byte, version byte, key []byte) {
	rec[0] = version
	binary.LittleEndian.PutUint32(rec[1:], checksum(version, key, rec[headerLen:]))
}

// record returns the record of a payload.
func record(version byte, key, payload []byte) []byte {
	rec := make([]byte, headerLen+len(payload))
	copy(rec[headerLen:], payload)
	seal(rec, version, key)
	return rec
}

func checksum(version byte, key, payload []byte) uint32 {
	c := crc32.Update(0, castagnoli, []byte{version})
	c = crc32.Update(c, castagnoli, key)
	return crc32.Update(c, castagnoli, payload)
}

// open checks a record and returns its payload, which shares rec's memory. The
// checksum is looked at before the version: a flipped bit in the version byte
// is damage, not a newer release.
func open(rec []byte, version byte, key []byte) ([]byte, error) {
	if len(rec) < headerLen {
		return nil, fmt.Errorf("%w: record %q is %d bytes long", ErrCorrupt, key, len(rec))
	}
	payload := rec[headerLen:]
	if binary.LittleEndian.Uint32(rec[1:]) != checksum(rec[0], key, payload) {
		return nil, fmt.Errorf("%w: record %q has a wrong checksum", ErrCorrupt, key)
	}
	if rec[0] == 0 {
		return nil, fmt.Errorf("%w: record %q has version 0", ErrCorrupt, key)
	}
	if rec[0] > version {
		return nil, fmt.Errorf("%w: record %q has version %d, this release reads up to %d",
			ErrVersion, key, rec[0], version)
	}
	return payload, nil
}

// entryPayloadLen is the exact length of appendEntry's output.
func entryPayloadLen(e *raftpb.Entry) int {
	return 1 + uvarintLen(e.GetTerm()) + len(e.GetData())
}

func uvarintLen(v uint64) int {
	n := 1
	for v >= 0x80 {
		v >>= 7
		n++
	}
	return n
}

func appendEntry(b []byte, e *raftpb.Entry) []byte {
	b = append(b, byte(e.GetType()))
	b = binary.AppendUvarint(b, e.GetTerm())
	return append(b, e.GetData()...)
}

// decodeEntry decodes the record of the entry at index. The entry's data is a
// copy.
func decodeEntry(rec, key []byte) (*raftpb.Entry, error) {
	index, err := parseEntryKey(key)
	if err != nil {
		return nil, err
	}
	p, err := open(rec, entryVersion, key)
	if err != nil {
		return nil, fmt.Errorf("entry %d: %w", index, err)
	}
	if len(p) < 2 {
		return nil, fmt.Errorf("%w: entry %d is too short", ErrCorrupt, index)
	}
	typ := raftpb.EntryType(p[0])
	if _, known := raftpb.EntryType_name[int32(typ)]; !known {
		return nil, fmt.Errorf("%w: entry %d has type %d", ErrCorrupt, index, p[0])
	}
	r := reader{b: p[1:]}
	term := r.uvarint()
	if r.bad {
		return nil, fmt.Errorf("%w: entry %d has no term", ErrCorrupt, index)
	}
	// One allocation instead of four: a restart decodes the whole log.
	box := &struct {
		entry       raftpb.Entry
		term, index uint64
		typ         raftpb.EntryType
	}{term: term, index: index, typ: typ}
	e := &box.entry
	e.Term, e.Index, e.Type = &box.term, &box.index, &box.typ
	e.Data = append([]byte(nil), r.b...) // nil if there is none
	return e, nil
}

// hardStateLen is the length of a hard state's record.
func hardStateLen(hs *raftpb.HardState) int {
	return headerLen + uvarintLen(hs.GetTerm()) + uvarintLen(hs.GetVote()) +
		uvarintLen(hs.GetCommit())
}

// putHardState fills in the record of a hard state, which is as long as hardStateLen says.
func putHardState(rec []byte, hs *raftpb.HardState) {
	b := binary.AppendUvarint(rec[:headerLen], hs.GetTerm())
	b = binary.AppendUvarint(b, hs.GetVote())
	binary.AppendUvarint(b, hs.GetCommit())
	seal(rec, hardStateVersion, keyHard)
}

// newHardState returns a hard state in one allocation instead of four.
func newHardState(term, vote, commit uint64) *raftpb.HardState {
	box := &struct {
		state              raftpb.HardState
		term, vote, commit uint64
	}{term: term, vote: vote, commit: commit}
	box.state.Term, box.state.Vote, box.state.Commit = &box.term, &box.vote, &box.commit
	return &box.state
}

func decodeHardState(rec []byte) (*raftpb.HardState, error) {
	p, err := open(rec, hardStateVersion, keyHard)
	if err != nil {
		return nil, fmt.Errorf("hard state: %w", err)
	}
	r := reader{b: p}
	term, vote, commit := r.uvarint(), r.uvarint(), r.uvarint()
	if err := r.end("hard state"); err != nil {
		return nil, err
	}
	return newHardState(term, vote, commit), nil
}

func encodeIdentity(id Identity) []byte {
	b := binary.AppendUvarint(nil, id.Cluster)
	b = binary.AppendUvarint(b, id.Member)
	b = binary.AppendUvarint(b, id.Generation)
	b = binary.AppendVarint(b, id.CreatedUnixMilli)
	b = binary.AppendUvarint(b, id.Incarnation)
	b = binary.AppendUvarint(b, uint64(len(id.Name)))
	b = append(b, id.Name...)
	return record(identityVersion, keyIdentity, b)
}

func decodeIdentity(rec []byte) (Identity, error) {
	p, err := open(rec, identityVersion, keyIdentity)
	if err != nil {
		return Identity{}, fmt.Errorf("identity: %w", err)
	}
	r := reader{b: p}
	id := Identity{Cluster: r.uvarint(), Member: r.uvarint(), Generation: r.uvarint()}
	id.CreatedUnixMilli = r.varint()
	id.Incarnation = r.uvarint()
	id.Name = string(r.bytes())
	return id, r.end("identity")
}

// A position is the index and term of an entry.
type position struct{ index, term uint64 }

func encodeMark(p position) []byte {
	b := binary.AppendUvarint(nil, p.index)
	return record(markVersion, keyMark, binary.AppendUvarint(b, p.term))
}

func decodeMark(rec []byte) (position, error) {
	p, err := open(rec, markVersion, keyMark)
	if err != nil {
		return position{}, fmt.Errorf("compaction mark: %w", err)
	}
	r := reader{b: p}
	pos := position{index: r.uvarint(), term: r.uvarint()}
	return pos, r.end("compaction mark")
}

func encodeConf(conf *raftpb.ConfState) ([]byte, error) {
	b, err := marshalConf(nil, conf)
	if err != nil {
		return nil, err
	}
	return record(confVersion, keyConf, b), nil
}

func decodeConf(rec []byte) (*raftpb.ConfState, error) {
	p, err := open(rec, confVersion, keyConf)
	if err != nil {
		return nil, fmt.Errorf("bootstrap membership: %w", err)
	}
	return unmarshalConf(p)
}

func marshalConf(b []byte, conf *raftpb.ConfState) ([]byte, error) {
	b, err := proto.MarshalOptions{Deterministic: true}.MarshalAppend(b, conf)
	if err != nil {
		return nil, fmt.Errorf("encode membership: %w", err)
	}
	return b, nil
}

func unmarshalConf(b []byte) (*raftpb.ConfState, error) {
	conf := &raftpb.ConfState{}
	if err := proto.Unmarshal(b, conf); err != nil {
		return nil, fmt.Errorf("%w: membership: %v", ErrCorrupt, err)
	}
	if unknown := conf.ProtoReflect().GetUnknown(); len(unknown) > 0 {
		return nil, fmt.Errorf("%w: membership has fields %x, which this release does not know",
			ErrVersion, unknown)
	}
	return raftpb.EnsureConfState(conf), nil
}

// A manifest describes a complete snapshot.
type manifest struct {
	position
	chunks, bytes uint64
	sum           uint32 // CRC-32C of all chunks, one after the other
	conf          *raftpb.ConfState
}

func encodeManifest(m manifest) ([]byte, error) {
	b := binary.AppendUvarint(nil, m.index)
	b = binary.AppendUvarint(b, m.term)
	b = binary.AppendUvarint(b, m.chunks)
	b = binary.AppendUvarint(b, m.bytes)
	b = binary.LittleEndian.AppendUint32(b, m.sum)
	b, err := marshalConf(b, m.conf)
	if err != nil {
		return nil, err
	}
	return record(manifestVersion, keyManifest, b), nil
}

func decodeManifest(rec []byte) (manifest, error) {
	p, err := open(rec, manifestVersion, keyManifest)
	if err != nil {
		return manifest{}, fmt.Errorf("snapshot manifest: %w", err)
	}
	r := reader{b: p}
	m := manifest{position: position{index: r.uvarint(), term: r.uvarint()}}
	m.chunks, m.bytes = r.uvarint(), r.uvarint()
	m.sum = r.uint32()
	if r.bad {
		return manifest{}, fmt.Errorf("%w: snapshot manifest is cut short", ErrCorrupt)
	}
	m.conf, err = unmarshalConf(r.b)
	return m, err
}

// A reader takes fields off the front of b. After the first that is missing, bad
// is set, b is empty and all are zero.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

// varint is binary.Varint: the sign is the lowest bit.
func (r *reader) varint() int64 {
	v := r.uvarint()
	return int64(v>>1) ^ -int64(v&1)
}

func (r *reader) uint32() uint32 {
	if len(r.b) < 4 {
		r.fail()
		return 0
	}
	v := binary.LittleEndian.Uint32(r.b)
	r.b = r.b[4:]
	return v
}

func (r *reader) bytes() []byte {
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		r.fail()
		return nil
	}
	v := r.b[:n]
	r.b = r.b[n:]
	return v
}

func (r *reader) fail() { r.b, r.bad = nil, true }

// end returns an error unless everything was there and nothing is left.
func (r *reader) end(what string) error {
	if r.bad {
		return fmt.Errorf("%w: %s is cut short", ErrCorrupt, what)
	}
	if len(r.b) > 0 {
		return fmt.Errorf("%w: %s has %d bytes too many", ErrCorrupt, what, len(r.b))
	}
	return nil
}
