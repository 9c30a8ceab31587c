package fsm

import (
	"encoding/binary"
	"maps"
	"slices"

	"leasehold.dev/internal/encoding"
)

// HashState asks each member for the hash of its state as of the end of the entry: see
// [Machine.HashedAt]. Only the leader's timer gives it.
type HashState struct{}

// StateHash is the hash that a member's state had after the entry Index, which had a HashState.
// Only the member itself may tell it: that is the replica's to see to.
type StateHash struct{ Member, Index, Hash uint64 }

func (*HashState) kind() kind { return kindHashState }
func (*StateHash) kind() kind { return kindStateHash }

// comparison is what members have told since the last HashState.
type comparison struct {
	index  uint64            // of its entry, 0 if there never was one
	hashes map[uint64]uint64 // by member
}

// HashedAt returns the index of the last entry with a HashState, 0 if there was none. If that entry
// was just applied, this member is to tell the hash of its Image.
func (m *Machine) HashedAt() uint64 { return m.meta.comparison.index }

// IsDamaged reports whether the state of a member was found to differ from that of the majority.
func (m *Machine) IsDamaged(member uint64) bool {
	_, damaged := m.alarms[Alarm{member, Damaged}]
	return damaged
}

func (m *Machine) applyComparison(c Command) Result {
	now := &m.meta.comparison
	switch c := c.(type) {
	case *HashState:
		m.judge(true)
		*now = comparison{index: m.index, hashes: make(map[uint64]uint64)}
	case *StateHash:
		_, member := m.members[c.Member]
		_, reported := now.hashes[c.Member]
		if member && !reported && c.Index == now.index && now.index > 0 {
			now.hashes[c.Member] = c.Hash
			m.judge(false)
		}
	}
	return Result{}
}

// judge compares what was told. A hash that a majority of the voters has is the right one,
// and a member with another is damaged: one member, whatever it says, brings about no such
// majority and stops nobody else. Without a majority it can only be said that the members differ,
// when all voters have told theirs, or in the end.
func (m *Machine) judge(end bool) {
	votes, voters, reported := make(map[uint64]int), 0, 0
	for id, n := range m.members {
		if n.Learner {
			continue
		}
		voters++
		if h, ok := m.meta.comparison.hashes[id]; ok {
			votes[h]++
			reported++
		}
	}
	for h, n := range votes {
		if 2*n > voters {
			m.condemn(h)
			return
		}
	}
	if len(votes) > 1 && (end || reported == voters) {
		m.alarms[Alarm{Kind: Split}] = struct{}{}
		m.metaChange()
	}
}

// condemn raises the alarm of members that have another hash than the right one.
func (m *Machine) condemn(right uint64) {
	delete(m.alarms, Alarm{Kind: Split})
	for id, h := range m.meta.comparison.hashes {
		if h != right {
			m.alarms[Alarm{id, Damaged}] = struct{}{}
		}
	}
	m.metaChange()
}

func appendStateHash(b []byte, c *StateHash) []byte {
	b = binary.BigEndian.AppendUint64(b, c.Member)
	return binary.AppendUvarint(binary.AppendUvarint(b, c.Index), c.Hash)
}

func (d *decoder) stateHash() *StateHash {
	return &StateHash{Member: d.Uint64(), Index: d.Uvarint(), Hash: d.Uvarint()}
}

// append appends the comparison in the order of the members.
func (c *comparison) append(b []byte) []byte {
	b = binary.AppendUvarint(b, c.index)
	members := slices.Sorted(maps.Keys(c.hashes))
	return encoding.AppendList(b, members, func(b []byte, id uint64) []byte {
		return binary.AppendUvarint(binary.BigEndian.AppendUint64(b, id), c.hashes[id])
	})
}

// told returns the comparison for readers of records.
func (c *comparison) told() any {
	type told struct{ Member, Hash uint64 }
	out := struct {
		Index  uint64
		Hashes []told
	}{Index: c.index}
	for _, id := range slices.Sorted(maps.Keys(c.hashes)) {
		out.Hashes = append(out.Hashes, told{id, c.hashes[id]})
	}
	return out
}

// image returns what append writes of a comparison, nothing if there never was one.
func (c *comparison) image() []byte {
	if c.index == 0 {
		return nil
	}
	return c.append(nil)
}

// comparison takes what append wrote, for a state of which nothing of the kind is known yet.
func (d *decoder) comparison(c *comparison) {
	index := d.Uvarint()
	if index == 0 || c.index != 0 {
		d.Fail("comparison of states")
	}
	*c = comparison{index: index, hashes: make(map[uint64]uint64)}
	last := uint64(0)
	encoding.List(&d.Decoder, func() struct{} {
		id := d.Uint64()
		if id <= last {
			d.Fail("order of the hashes of states")
		}
		last, c.hashes[id] = id, d.Uvarint()
		return struct{}{}
	})
}
