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

// These errors say why the cluster version stays as it is.
var (
	// ErrVersion means that some member does not speak the cluster version that was asked for, or
	// that it may not change in this way: it rises while nothing holds it, and falls only to be held.
	ErrVersion = errors.New("fsm: not all members can take this cluster version")
	// ErrDowngrade means that the cluster version is held already.
	ErrDowngrade = errors.New("fsm: a downgrade is under way")
	// ErrNoDowngrade means that nothing holds the cluster version.
	ErrNoDowngrade = errors.New("fsm: no downgrade is under way")
)

// ClusterVersion is the version that the members have decided on: see package version.
type ClusterVersion struct {
	Number byte
	// Held says that a downgrade to Number stands, so that nobody raises it.
	Held bool
	// Fell says that it fell to be held. Such a downgrade is over when nobody speaks a newer
	// version any more, as in etcd. A version that is held where it was, to have time to go back,
	// is held until somebody lets go of it: one upgraded member that goes back is not the end of
	// the upgrade.
	Fell bool
	// Decided is the index of the entry that said so. Of two members that differ, the one with
	// the greater index knows better.
	Decided uint64
}

// SetVersion changes the cluster version. The leader raises it, to one that all members speak.
// With Hold it falls, or stays, and is held then, until a SetVersion without Hold lets go of it. So
// it never falls without being held.
type SetVersion struct {
	Version byte
	Hold    bool
}

func (*SetVersion) kind() kind { return kindSetVersion }

// setHold is the flag of a SetVersion.
const setHold byte = 1

func appendSetVersion(b []byte, c *SetVersion) []byte {
	return append(b, encoding.Flag(c.Hold, setHold), c.Version)
}

func (d *decoder) setVersion() *SetVersion {
	c := &SetVersion{Hold: d.Bool("a change of the cluster version"), Version: d.Byte()}
	if c.Version == 0 {
		d.Fail("cluster version 0")
	}
	return c
}

// Flags of the cluster version in a snapshot.
const (
	versionHeld byte = 1 << iota
	versionFell      // and held
)

// appendVersion appends the cluster version without its number, which is the version of the
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
		d.Fail("a cluster version that fell and is not held")
	}
	return v
}

// Version returns the cluster version.
func (m *Machine) Version() ClusterVersion { return m.version }

// Foreign says why this release cannot go on with the state: it does not speak the cluster
// version. The error wraps encoding.ErrNewer or encoding.ErrOlder.
func (m *Machine) Foreign() error {
	v, why := m.version.Number, encoding.ErrNewer
	if m.cfg.Versions.Has(v) {
		return nil
	}
	if v < m.cfg.Versions.Oldest {
		why = encoding.ErrOlder
	}
	return fmt.Errorf("%w: the cluster version is %s, and this release speaks %v",
		why, version.Name(v), m.cfg.Versions)
}

// Has reports whether a cluster version has all that is in a command: whether it may be written
// while the cluster has that version. That is so if decoders take it, which know of each part the
// version that brought it. So there is no second list of what is new, and none that lacks anything.
func Has(v byte, c Command) bool {
	if v >= version.Newest {
		return true
	}
	d := decoder{Decoder: logFormat.Decoder(v, AppendCommand(nil, c)), views: true}
	d.command()
	return d.End() == nil
}

// Takes says why c may not change the cluster version, nil if it may.
func (v *View) Takes(c *SetVersion) error {
	return c.vet(v.Version, slices.Values(v.Members))
}

func (m *Machine) applyVersion(c *SetVersion) error {
	if err := c.vet(m.version, maps.Values(m.members)); err != nil {
		return err
	}
	m.version = ClusterVersion{
		Number: c.Version, Held: c.Hold, Fell: c.Version < m.version.Number, Decided: m.index,
	}
	m.meta.changed = true
	return nil
}

// vet says why c may not change the cluster version. Only members of which nothing is known are no
// obstacle to its fall: they have no data yet, and learn at their start whether they can take part.
func (c *SetVersion) vet(now ClusterVersion, members iter.Seq[Member]) error {
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
	if c.Hold && !newer { // nobody would raise it
		return ErrVersion
	}
	return nil
}

// Behind returns the members for which the cluster version waits, although others speak a newer
// one: those that speak none, and those of which nothing is known because they never started. While
// it is held it waits for nobody.
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

// DueVersion returns the change of the cluster version for which it is time, nil if there is none:
// it rises to the newest that all members speak, unless it is held, and if it fell it is let go
// when nobody speaks a newer one any more. The leader proposes it.
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
