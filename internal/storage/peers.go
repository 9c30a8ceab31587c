package storage

import (
	"fmt"
	"maps"
)

// Peers is what a member has recorded about the others, separately from the replicated state,
// because it needs this before it has a state that names them.
type Peers struct {
	// Assembled means that every other founder has recorded this member's incarnation, or that this
	// member is not a founder. Until then it takes no part in the cluster.
	Assembled bool

	// Claimed means that a member of another cluster considers this one a member of that cluster.
	Claimed bool

	// Incarnations holds the incarnation of each member that this one has been in contact with, by
	// member ID.
	Incarnations map[uint64]uint64
}

// clone returns a deep copy.
func (p Peers) clone() Peers {
	p.Incarnations = maps.Clone(p.Incarnations)
	return p
}

// Peers returns what was saved last, or the zero value.
func (d *Disk) Peers() Peers {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.peers.clone()
}

// SavePeers durably replaces the member's record of the others.
func (d *Disk) SavePeers(p Peers) error {
	p = p.clone()
	err := d.update(func() error {
		return d.commit(forState, appendPeers(d.records, p), func(*frame) { d.peers = p })
	})
	if err != nil {
		return fmt.Errorf("save the records of the other members: %w", err)
	}
	return nil
}
