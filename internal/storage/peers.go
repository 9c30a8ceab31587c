package storage

import (
	"fmt"
	"maps"
)

// Peers is what a member has recorded about the other members. It is separate from the replicated
// state, because the member needs it before it has a state that includes them.
type Peers struct {
	// Assembled means that every other founder has recorded this member's incarnation, or that this
	// member is not a founder. Until it is set, the member takes no part in the cluster.
	Assembled bool

	// Claimed means that a member of another cluster considers this member part of that cluster.
	Claimed bool

	// Incarnations maps the ID of each member that this one has been in contact with to that
	// member's incarnation.
	Incarnations map[uint64]uint64
}

// clone returns a deep copy.
func (p Peers) clone() Peers {
	p.Incarnations = maps.Clone(p.Incarnations)
	return p
}

// Peers returns the value that was saved last, or the zero value.
func (d *Disk) Peers() Peers {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.peers.clone()
}

// SavePeers durably replaces this member's record of the other members.
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
