package fsm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"leasehold.dev/internal/encoding"
	"leasehold.dev/internal/version"
)

// These errors explain why the cluster version was not changed.
var (
	// ErrVersion means that some member does not support the requested cluster version, or that the
	// change is not allowed. The version can rise only while it is not held, and can fall only if
	// it is held afterward.
	ErrVersion = errors.New("fsm: not all members support this cluster version")
	// ErrDowngrade means that the cluster version is already held.
	ErrDowngrade = errors.New("fsm: a downgrade is in progress")
	// ErrNoDowngrade means that the cluster version is not held.
	ErrNoDowngrade = errors.New("fsm: no downgrade is in progress")
)

// ClusterVersion is the version that the members have agreed on: see package version.
type ClusterVersion struct {
	Number byte
	// Held is true while a downgrade to Number is in effect. It prevents the version from rising.
	Held bool
	// Fell is true if the version fell when the hold began. As in etcd, such a downgrade is over
	// once no member supports a newer version. A version can also be held without falling, so that
	// a rollback remains possible. Such a version stays held until it is explicitly released:
	// rolling back one upgraded member does not end the upgrade.
	Fell bool
	// Decided is the index of the entry that made the decision. If two members disagree, the
	// decision with the larger index is more recent.
	Decided uint64
}

// SetVersion changes the cluster version. The leader raises the version once all members support a
// newer one. With Hold, the version falls or stays the same, and is held until a SetVersion without
// Hold releases it. So the version never falls without being held.
type SetVersion struct {
	Version byte
	Hold    bool
}

func (*SetVersion) kind() kind { return kindSetVersion }

// setHold is set in a SetVersion that holds the version.
const setHold byte = 1

func appendSetVersion(b []byte, c *SetVersion) []byte {
	return append(b, encoding.Flag(c.Hold, setHold), c.Version)
}

func (d *decoder) setVersion() *SetVersion {
	c := &SetVersion{Hold: d.Bool("a cluster version change"), Version: d.Byte()}
	if c.Version == 0 {
		d.Fail("cluster version 0")
	}
	return c
}

// Flags for the cluster version in a snapshot.
const (
	versionHeld byte = 1 << iota
	versionFell      // set only together with versionHeld
)

// appendVersion appends the cluster version without its number. The number is the version of the
// snapshot.
func appendVersion(b []byte, v ClusterVersion) []byte {
	flags := encoding.Flag(v.Held, versionHeld) | encoding.Flag(v.Fell, versionFell)
	return binary.AppendUvarint(append(b, flags), v.Decided)
}

func (d *decoder) clusterVersion() ClusterVersion {
	flags := d.Flags("the cluster version", versionHeld|versionFell)
	v := ClusterVersion{
		Number: d.Version(), Held: flags&versionHeld != 0, Fell: flags&versionFell != 0,
		Decided: d.Uvarint(),
	}
	if v.Fell && !v.Held {
		d.Fail("a cluster version that was lowered but is not held")
	}
	return v
}

// Version returns the cluster version.
func (m *Machine) Version() ClusterVersion { return m.version }

// CheckVersion returns an error if this release does not support the cluster version of the state.
// The error wraps encoding.ErrNewer or encoding.ErrOlder.
func (m *Machine) CheckVersion() error {
	v, why := m.version.Number, encoding.ErrNewer
	if m.cfg.Versions.Has(v) {
		return nil
	}
	if v < m.cfg.Versions.Oldest {
		why = encoding.ErrOlder
	}
	return fmt.Errorf("%w: the cluster version is %s, but this release supports %v",
		why, version.Name(v), m.cfg.Versions)
}

// Has reports whether a cluster version supports every part of a command, so that the command can
// be proposed while the cluster has that version. It relies on the decoder, which knows the version
// that introduced each part. A separate list of features could be incomplete.
func Has(v byte, c Command) bool {
	if v >= version.Newest {
		return true
	}
	d := decoder{Decoder: logFormat.Decoder(v, AppendCommand(nil, c)), views: true}
	d.command()
	return d.End() == nil
}

// CheckSetVersion returns an error if c cannot change the cluster version.
func (v *View) CheckSetVersion(c *SetVersion) error {
	return c.validate(v.Version, slices.Values(v.Members))
}

func (m *Machine) applyVersion(c *SetVersion) error {
	if err := c.validate(m.version, maps.Values(m.members)); err != nil {
		return err
	}
	m.version = ClusterVersion{
		Number: c.Version, Held: c.Hold, Fell: c.Version < m.version.Number, Decided: m.index,
	}
	m.meta.changed = true
	return nil
}

// validate returns an error if c cannot change the cluster version. Members that have never started
// do not prevent the version from falling: they have no data yet, and check the version when they
// start.
func (c *SetVersion) validate(now ClusterVersion, members iter.Seq[Member]) error {
	rises := c.Version > now.Number
	switch {
	case c.Hold && now.Held:
		return ErrDowngrade
	case !c.Hold && !now.Held && c.Version == now.Number:
		return ErrNoDowngrade
	case rises && (c.Hold || now.Held), c.Version < now.Number && !c.Hold:
		return ErrVersion
	}
	newer := false
	for n := range members {
		if n.Versions.Known() && !n.Versions.Has(c.Version) || rises && !n.Versions.Known() {
			return ErrVersion
		}
		newer = newer || n.Versions.Newest > c.Version
	}
	if c.Hold && !newer { // otherwise the version would never be raised
		return ErrVersion
	}
	return nil
}

// Behind returns the members that keep the cluster version from rising, if other members support a
// newer one. They are the members that do not support it, and members that have never started. If
// the version is held, Behind returns none.
func (v *View) Behind() (ids []uint64) {
	newer := func(n Member) bool { return n.Versions.Newest > v.Version.Number }
	if v.Version.Held || !slices.ContainsFunc(v.Members, newer) {
		return nil
	}
	for _, n := range v.Members {
		if !newer(n) {
			ids = append(ids, n.ID)
		}
	}
	return ids
}

// DueVersion returns the change of the cluster version that is due, or nil if there is none. The
// version rises to the newest version that all members support, unless it is held. If it fell, it
// is released once no member supports a newer version. The leader proposes the change.
func (m *Machine) DueVersion() *SetVersion {
	now, common, newer := m.version, version.Range{}, false
	for _, n := range m.members {
		r := n.Versions
		switch {
		case !r.Known():
			return nil
		case !common.Known():
			common = r
		default:
			common = version.Range{
				Oldest: max(common.Oldest, r.Oldest), Newest: min(common.Newest, r.Newest),
			}
		}
		newer = newer || r.Newest > now.Number
	}
	switch {
	case now.Fell && !newer:
		return &SetVersion{Version: now.Number}
	case !now.Held && common.Known() && common.Newest > now.Number:
		return &SetVersion{Version: common.Newest}
	}
	return nil
}
