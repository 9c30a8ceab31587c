package fsm

import (
	"encoding/binary"
	"maps"
	"slices"

	"leasehold.dev/internal/encoding"
)

// HashState asks every member for the hash of its state after this entry: see [Machine.HashedAt].
// It is issued only by the leader's timer.
type HashState struct{}

// StateHash reports the hash of a member's state after the entry at Index, which contained a
// HashState. Only the member itself may report it. The replica enforces this.
type StateHash struct{ Member, Index, Hash uint64 }

func (*HashState) kind() kind { return kindHashState }
func (*StateHash) kind() kind { return kindStateHash }

// comparison collects the hashes that members have reported since the last HashState.
type comparison struct {
	index  uint64            // of the entry with the HashState, or 0 if there was none
	hashes map[uint64]uint64 // by member
}

// HashedAt returns the index of the last entry with a HashState, or 0 if there was none. If that
// entry has just been applied, this member must report the hash of its Image.
func (m *Machine) HashedAt() uint64 { return m.meta.comparison.index }

// IsDamaged reports whether a comparison found that a member's state differs from the majority's.
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

// judge compares the reported hashes. A hash reported by a majority of the voters is correct, and a
// member with a different hash is damaged. No matter what it reports, a single member can neither
// create such a majority nor keep the others from forming one. Without a majority, judge can only
// conclude that the members differ. It does so once all voters have reported, or if end is set.
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

// condemn raises the alarm for every member that reported a hash other than right.
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

// append encodes the comparison, ordered by member.
func (c *comparison) append(b []byte) []byte {
	b = binary.AppendUvarint(b, c.index)
	members := slices.Sorted(maps.Keys(c.hashes))
	return encoding.AppendList(b, members, func(b []byte, id uint64) []byte {
		return binary.AppendUvarint(binary.BigEndian.AppendUint64(b, id), c.hashes[id])
	})
}

// reported returns the comparison for tools that print records.
func (c *comparison) reported() any {
	type reported struct{ Member, Hash uint64 }
	out := struct {
		Index  uint64
		Hashes []reported
	}{Index: c.index}
	for _, id := range slices.Sorted(maps.Keys(c.hashes)) {
		out.Hashes = append(out.Hashes, reported{id, c.hashes[id]})
	}
	return out
}

// image returns the encoded comparison, or nil if there has never been one.
func (c *comparison) image() []byte {
	if c.index == 0 {
		return nil
	}
	return c.append(nil)
}

// comparison decodes what append wrote. It fails if the state already has a comparison.
func (d *decoder) comparison(c *comparison) {
	index := d.Uvarint()
	if index == 0 || c.index != 0 {
		d.Fail("state comparison")
	}
	*c = comparison{index: index, hashes: make(map[uint64]uint64)}
	last := uint64(0)
	encoding.List(&d.Decoder, func() struct{} {
		id := d.Uint64()
		if id <= last {
			d.Fail("order of the state hashes")
		}
		last, c.hashes[id] = id, d.Uvarint()
		return struct{}{}
	})
}
