package storage

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// formatVersion is the version of all files. Segments and snapshots begin with it.
const formatVersion = 1

// The payload of a commit is a list of records, each its kind (one byte), its length (uvarint) and
// its fields.
const (
	kindSegment  = 1 // the first record of a segment
	kindEntry    = 2
	kindHard     = 3
	kindMark     = 4 // the log begins after a position
	kindSnapshot = 5 // the newest snapshot, a file
	kindReset    = 6 // the log is empty and begins after a position
	kindPeers    = 7
	kindSealed   = 8 // the last record of a segment: the next one exists
)

// A record is one of a commit.
type record struct {
	kind byte
	body []byte
}

// records calls visit for each record of a payload.
func records(payload []byte, visit func(record) error) error {
	r := reader{b: payload}
	for len(r.b) > 0 {
		kind := r.b[0]
		r.b = r.b[1:]
		body := r.bytes()
		if r.bad {
			return fmt.Errorf("%w: a record of kind %d is cut short", ErrCorrupt, kind)
		}
		if err := visit(record{kind, body}); err != nil {
			return err
		}
	}
	return nil
}

// appendRecord appends a record whose fields are uvarints, and then tail.
func appendRecord(b []byte, kind byte, fields []uint64, tail []byte) []byte {
	n := len(tail)
	for _, f := range fields {
		n += uvarintLen(f)
	}
	b = binary.AppendUvarint(append(b, kind), uint64(n))
	for _, f := range fields {
		b = binary.AppendUvarint(b, f)
	}
	return append(b, tail...)
}

func uvarintLen(v uint64) int {
	n := 1
	for v >= 0x80 {
		v >>= 7
		n++
	}
	return n
}

// segmentHead is the first record of a segment.
type segmentHead struct {
	number uint64
	size   int64
	chain  uint32 // of the commit before the segment
	owner  Identity
}

func appendHead(b []byte, h segmentHead) []byte {
	return appendRecord(b, kindSegment, []uint64{
		formatVersion, h.number, uint64(h.size), uint64(h.chain),
		h.owner.Cluster, h.owner.Member, h.owner.Incarnation,
	}, nil)
}

func decodeHead(body []byte) (h segmentHead, err error) {
	r := reader{b: body}
	if v := r.uvarint(); v > formatVersion {
		return h, fmt.Errorf("%w: the segment has version %d, this release reads up to %d",
			ErrVersion, v, formatVersion)
	}
	h.number, h.size, h.chain = r.uvarint(), int64(r.uvarint()), uint32(r.uvarint())
	h.owner = Identity{Cluster: r.uvarint(), Member: r.uvarint(), Incarnation: r.uvarint()}
	return h, r.end("segment head")
}

func appendEntry(b []byte, e *raftpb.Entry) []byte {
	n := uvarintLen(e.GetIndex()) + uvarintLen(e.GetTerm()) + 1 + len(e.GetData())
	b = binary.AppendUvarint(append(b, kindEntry), uint64(n))
	b = binary.AppendUvarint(b, e.GetIndex())
	b = binary.AppendUvarint(b, e.GetTerm())
	b = append(b, byte(e.GetType()))
	return append(b, e.GetData()...)
}

// decodeEntry decodes an entry. Its data is a copy.
func decodeEntry(body []byte) (*raftpb.Entry, error) {
	r := reader{b: body}
	index, term := r.uvarint(), r.uvarint()
	if r.bad || len(r.b) == 0 {
		return nil, fmt.Errorf("%w: entry is cut short", ErrCorrupt)
	}
	typ := raftpb.EntryType(r.b[0])
	if _, known := raftpb.EntryType_name[int32(typ)]; !known {
		return nil, fmt.Errorf("%w: entry %d has type %d", ErrCorrupt, index, typ)
	}
	// One allocation instead of four: a restart decodes the whole log.
	box := &struct {
		entry       raftpb.Entry
		term, index uint64
		typ         raftpb.EntryType
	}{term: term, index: index, typ: typ}
	e := &box.entry
	e.Term, e.Index, e.Type = &box.term, &box.index, &box.typ
	e.Data = append([]byte(nil), r.b[1:]...) // nil if there is none
	return e, nil
}

func appendHard(b []byte, hs *raftpb.HardState) []byte {
	return appendRecord(b, kindHard, []uint64{hs.GetTerm(), hs.GetVote(), hs.GetCommit()}, nil)
}

func decodeHard(body []byte) (*raftpb.HardState, error) {
	r := reader{b: body}
	term, vote, commit := r.uvarint(), r.uvarint(), r.uvarint()
	return newHardState(term, vote, commit), r.end("hard state")
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

// position is the index and term of an entry.
type position struct{ index, term uint64 }

// A mark says where the log begins, and which is the oldest segment that it needs.
type mark struct {
	position
	segment uint64
}

func appendMark(b []byte, kind byte, m mark) []byte {
	return appendRecord(b, kind, []uint64{m.index, m.term, m.segment}, nil)
}

func decodeMark(body []byte) (mark, error) {
	r := reader{b: body}
	m := mark{position{r.uvarint(), r.uvarint()}, r.uvarint()}
	return m, r.end("compaction mark")
}

// manifest describes a complete snapshot.
type manifest struct {
	position
	chunks, bytes uint64
	sum           uint32 // CRC-32C of all chunks, one after the other
	conf          *raftpb.ConfState
}

func appendManifest(b []byte, m manifest) ([]byte, error) {
	conf, err := marshalConf(m.conf)
	fields := []uint64{m.index, m.term, m.chunks, m.bytes, uint64(m.sum)}
	return appendRecord(b, kindSnapshot, fields, conf), err
}

func decodeManifest(body []byte) (m manifest, err error) {
	r := reader{b: body}
	m.position = position{r.uvarint(), r.uvarint()}
	m.chunks, m.bytes, m.sum = r.uvarint(), r.uvarint(), uint32(r.uvarint())
	if r.bad {
		return m, fmt.Errorf("%w: snapshot record is cut short", ErrCorrupt)
	}
	m.conf, err = unmarshalConf(r.b)
	return m, err
}

func marshalConf(conf *raftpb.ConfState) ([]byte, error) {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(conf)
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
		return nil, fmt.Errorf("%w: membership has unknown fields %x", ErrVersion, unknown)
	}
	return raftpb.EnsureConfState(conf), nil
}

func appendPeers(b []byte, p Peers) []byte {
	fields := []uint64{0}
	if p.Assembled {
		fields[0] |= 1
	}
	if p.Claimed {
		fields[0] |= 2
	}
	for _, id := range slices.Sorted(maps.Keys(p.Incarnations)) {
		fields = append(fields, id, p.Incarnations[id])
	}
	return appendRecord(b, kindPeers, fields, nil)
}

func decodePeers(body []byte) (Peers, error) {
	r := reader{b: body}
	bits := r.uvarint()
	if bits > 3 {
		return Peers{}, fmt.Errorf("%w: peers have flags %#x", ErrVersion, bits)
	}
	p := Peers{Assembled: bits&1 != 0, Claimed: bits&2 != 0, Incarnations: map[uint64]uint64{}}
	for len(r.b) > 0 {
		id := r.uvarint()
		p.Incarnations[id] = r.uvarint()
	}
	return p, r.end("peers")
}

// encodeIdentity returns the content of the file that says whose directory it is, and with which
// members its log begins: version, CRC-32C of all else, and the fields.
func encodeIdentity(id Identity, conf *raftpb.ConfState) ([]byte, error) {
	b := make([]byte, 5)
	b[0] = formatVersion
	for _, v := range []uint64{id.Cluster, id.Member, id.Generation, id.Incarnation} {
		b = binary.AppendUvarint(b, v)
	}
	b = binary.AppendVarint(b, id.CreatedUnixMilli)
	b = binary.AppendUvarint(b, uint64(len(id.Name)))
	b = append(b, id.Name...)
	members, err := marshalConf(conf)
	b = append(b, members...)
	binary.LittleEndian.PutUint32(b[1:], identitySum(b))
	return b, err
}

// identitySum is the checksum of all but the checksum.
func identitySum(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:1], castagnoli), castagnoli, b[5:])
}

// decodeIdentity looks at the checksum before the version: a flipped bit in the version is damage,
// not a newer release.
func decodeIdentity(b []byte) (id Identity, conf *raftpb.ConfState, err error) {
	if len(b) < 5 || binary.LittleEndian.Uint32(b[1:]) != identitySum(b) {
		return id, nil, fmt.Errorf("%w: identity has a wrong checksum", ErrCorrupt)
	}
	if b[0] > formatVersion {
		return id, nil, fmt.Errorf("%w: identity has version %d, this release reads up to %d",
			ErrVersion, b[0], formatVersion)
	}
	r := reader{b: b[5:]}
	id = Identity{
		Cluster: r.uvarint(), Member: r.uvarint(), Generation: r.uvarint(), Incarnation: r.uvarint(),
	}
	id.CreatedUnixMilli, id.Name = r.varint(), string(r.bytes())
	if r.bad {
		return id, nil, fmt.Errorf("%w: identity is cut short", ErrCorrupt)
	}
	conf, err = unmarshalConf(r.b)
	return id, conf, err
}

// A reader takes fields off the front of b. After the first that is missing, bad is set, b is empty
// and all are zero.
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
