package storage

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
)

// Peers is what a member remembers of the others by itself, beside the replicated
// state: it must know them before there is a state that names them.
type Peers struct {
	// Assembled says that every other founder has noted this member's incarnation, or
	// that this member is no founder. Until then it takes no part in the cluster.
	Assembled bool

	// Claimed says that a member of another cluster has taken this one for its own.
	Claimed bool

	// Incarnations has the incarnation of each member that this one has met, by its ID.
	Incarnations map[uint64]uint64
}

// clone returns a copy that shares nothing with p.
func (p Peers) clone() Peers {
	p.Incarnations = maps.Clone(p.Incarnations)
	return p
}

// Peers returns what was saved last, or nothing.
func (d *Disk) Peers() Peers {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.peers.clone()
}

// SavePeers replaces what the member remembers of the others, durably.
func (d *Disk) SavePeers(p Peers) error {
	if err := d.enter(); err != nil {
		return err
	}
	defer d.life.RUnlock()
	d.write.Lock()
	defer d.write.Unlock()
	if err := d.commit(true, set(keyPeers, encodePeers(p))); err != nil {
		return fmt.Errorf("save what is known of the other members: %w", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.peers = p.clone()
	return nil
}

func encodePeers(p Peers) []byte {
	bits := uint64(0)
	if p.Assembled {
		bits = 1
	}
	if p.Claimed {
		bits |= 2
	}
	b := binary.AppendUvarint(nil, bits)
	b = binary.AppendUvarint(b, uint64(len(p.Incarnations)))
	for _, id := range slices.Sorted(maps.Keys(p.Incarnations)) {
		b = binary.AppendUvarint(b, id)
		b = binary.AppendUvarint(b, p.Incarnations[id])
	}
	return record(peersVersion, keyPeers, b)
}

func decodePeers(rec []byte) (Peers, error) {
	b, err := open(rec, peersVersion, keyPeers)
	if err != nil {
		return Peers{}, fmt.Errorf("other members: %w", err)
	}
	r := reader{b: b}
	bits := r.uvarint()
	if bits > 3 {
		r.fail()
	}
	p := Peers{
		Assembled: bits&1 != 0, Claimed: bits&2 != 0, Incarnations: make(map[uint64]uint64),
	}
	for n := r.uvarint(); n > 0 && !r.bad; n-- {
		id := r.uvarint()
		p.Incarnations[id] = r.uvarint()
	}
	return p, r.end("other members")
}
