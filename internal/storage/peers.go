package storage

import (
	"fmt"
	"maps"
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
	p = p.clone()
	err := d.update(func() error {
		return d.commit(forState, appendPeers(d.records, p), func(*frame) { d.peers = p })
	})
	if err != nil {
		return fmt.Errorf("save what is known of the other members: %w", err)
	}
	return nil
}
