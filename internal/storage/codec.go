package storage

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/bits"
	"slices"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"leasehold.dev/internal/encoding"
)

// format is the format of all files. The identity file and each segment begin with its version.
var format = encoding.Format{Name: "data directory", Version: 1, Corrupt: ErrCorrupt}

// The payload of a commit is a list of records. Each record has a kind (one byte), a length
// (uvarint) and fields.
const (
	kindSegment  = 1 // the first record of a segment
	kindEntry    = 2
	kindHard     = 3
	kindMark     = 4 // position after which the log begins
	kindSnapshot = 5 // the newest snapshot, which is a file
	kindReset    = 6 // position after which the log begins; the log is now empty
	kindPeers    = 7
	kindSeal     = 8 // only record of a segment's last commit: the next segment exists
	kindIdentity = 9 // only record of the identity file
)

// A record is one record of a commit.
type record struct {
	kind byte
	body []byte
}

func (r record) decoder() encoding.Decoder { return format.Decoder(format.Version, r.body) }

// records calls visit for each record of a payload.
func records(payload []byte, visit func(record) error) error {
	d := record{body: payload}.decoder()
	for d.Len() > 0 {
		r := record{d.Byte(), d.View()}
		if err := d.Err(); err != nil {
			return err
		}
		if err := visit(r); err != nil {
			return err
		}
	}
	return nil
}

// appendRecord appends a record with uvarint fields, followed by tail.
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

func uvarintLen(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }

// segmentHead is the first record of a segment.
type segmentHead struct {
	number uint64
	size   int64
	chain  uint32 // chain of the last commit before the segment
	owner  Identity
}

func appendHead(b []byte, h segmentHead) []byte {
	return appendRecord(b, kindSegment, []uint64{
		uint64(format.Version), h.number, uint64(h.size), uint64(h.chain),
		h.owner.Cluster, h.owner.Member, h.owner.Incarnation,
	}, nil)
}

func (r record) head() (h segmentHead, err error) {
	d := r.decoder()
	d.Header()
	h.number, h.size, h.chain = d.Uvarint(), int64(d.Uvarint()), uint32(d.Uvarint())
	h.owner = Identity{Cluster: d.Uvarint(), Member: d.Uvarint(), Incarnation: d.Uvarint()}
	return h, d.End()
}

func appendEntry(b []byte, e *raftpb.Entry) []byte {
	n := uvarintLen(e.GetIndex()) + uvarintLen(e.GetTerm()) + 1 + len(e.GetData())
	b = binary.AppendUvarint(append(b, kindEntry), uint64(n))
	b = binary.AppendUvarint(b, e.GetIndex())
	b = binary.AppendUvarint(b, e.GetTerm())
	b = append(b, byte(e.GetType()))
	return append(b, e.GetData()...)
}

// entry decodes an entry. Its data is a copy.
func (r record) entry() (*raftpb.Entry, error) {
	d := r.decoder()
	// Make one allocation instead of four, because a restart decodes the entire log.
	box := &struct {
		entry       raftpb.Entry
		term, index uint64
		typ         raftpb.EntryType
	}{index: d.Uvarint(), term: d.Uvarint()}
	box.typ = raftpb.EntryType(d.Choice("entry", byte(raftpb.EntryConfChangeV2)))
	e := &box.entry
	e.Term, e.Index, e.Type = &box.term, &box.index, &box.typ
	e.Data = append([]byte(nil), d.Rest()...) // nil if empty
	return e, d.Err()
}

func appendHard(b []byte, hs *raftpb.HardState) []byte {
	return appendRecord(b, kindHard, []uint64{hs.GetTerm(), hs.GetVote(), hs.GetCommit()}, nil)
}

func (r record) hard() (*raftpb.HardState, error) {
	d := r.decoder()
	term, vote, commit := d.Uvarint(), d.Uvarint(), d.Uvarint()
	return newHardState(term, vote, commit), d.End()
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

// A mark is the position where the log begins and the number of the oldest segment that it needs.
type mark struct {
	position
	segment uint64
}

func appendMark(b []byte, kind byte, m mark) []byte {
	return appendRecord(b, kind, []uint64{m.index, m.term, m.segment}, nil)
}

func (r record) mark() (mark, error) {
	d := r.decoder()
	m := mark{position{d.Uvarint(), d.Uvarint()}, d.Uvarint()}
	return m, d.End()
}

// manifest describes a complete snapshot.
type manifest struct {
	position
	chunks, bytes uint64
	sum           uint32 // CRC-32C of all chunks, concatenated
	conf          *raftpb.ConfState
}

func appendManifest(b []byte, m manifest) []byte {
	fields := []uint64{m.index, m.term, m.chunks, m.bytes, uint64(m.sum)}
	return appendRecord(b, kindSnapshot, fields, marshalConf(m.conf))
}

func (r record) manifest() (m manifest, err error) {
	d := r.decoder()
	m.position = position{d.Uvarint(), d.Uvarint()}
	m.chunks, m.bytes, m.sum = d.Uvarint(), d.Uvarint(), uint32(d.Uvarint())
	m.conf, err = unmarshalConf(&d)
	return m, err
}

func marshalConf(conf *raftpb.ConfState) []byte {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(conf)
	if err != nil {
		panic("storage: encode membership: " + err.Error()) // conf has only numbers
	}
	return b
}

// unmarshalConf decodes a membership from the rest of d.
func unmarshalConf(d *encoding.Decoder) (*raftpb.ConfState, error) {
	conf := &raftpb.ConfState{}
	if err := d.Err(); err != nil {
		return nil, err
	}
	if err := proto.Unmarshal(d.Rest(), conf); err != nil {
		return nil, fmt.Errorf("%w: membership: %v", ErrCorrupt, err)
	}
	if unknown := conf.ProtoReflect().GetUnknown(); len(unknown) > 0 {
		return nil, fmt.Errorf("%w: membership has unknown fields %x", encoding.ErrNewer, unknown)
	}
	return raftpb.EnsureConfState(conf), nil
}

const (
	peersAssembled = 1
	peersClaimed   = 2
)

func appendPeers(b []byte, p Peers) []byte {
	flags := encoding.Flag(p.Assembled, peersAssembled) | encoding.Flag(p.Claimed, peersClaimed)
	fields := []uint64{uint64(flags)}
	for _, id := range slices.Sorted(maps.Keys(p.Incarnations)) {
		fields = append(fields, id, p.Incarnations[id])
	}
	return appendRecord(b, kindPeers, fields, nil)
}

func (r record) peers() (Peers, error) {
	d := r.decoder()
	flags := d.Flags("peers", peersAssembled|peersClaimed)
	p := Peers{
		Assembled: flags&peersAssembled != 0, Claimed: flags&peersClaimed != 0,
		Incarnations: map[uint64]uint64{},
	}
	for d.Len() > 0 {
		id := d.Uvarint()
		p.Incarnations[id] = d.Uvarint()
	}
	return p, d.End()
}

func appendIdentity(b []byte, id Identity, conf *raftpb.ConfState) []byte {
	tail := binary.AppendVarint(nil, id.CreatedUnixMilli)
	tail = append(encoding.AppendBytes(tail, id.Name), marshalConf(conf)...)
	return appendRecord(b, kindIdentity, []uint64{
		uint64(format.Version), id.Cluster, id.Member, id.Generation, id.Incarnation,
	}, tail)
}

func (r record) identity() (id Identity, conf *raftpb.ConfState, err error) {
	d := r.decoder()
	d.Header()
	id = Identity{
		Cluster: d.Uvarint(), Member: d.Uvarint(), Generation: d.Uvarint(), Incarnation: d.Uvarint(),
	}
	id.CreatedUnixMilli, id.Name = d.Varint(), d.Text()
	conf, err = unmarshalConf(&d)
	return id, conf, err
}
