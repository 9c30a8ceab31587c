//go:build next

package fsm

import (
	"encoding/binary"
	"fmt"

	"leasehold.dev/internal/encoding"
)

// The make-believe next release has one more command, which counts, one more flag of a deletion,
// which counts too, and the count in the state and behind a flag in snapshots. When the cluster
// version falls the count is gone.

// sinceNext is the cluster version that brought it.
const sinceNext = 2

// nextState is what of the state only the next version has: how often it was counted.
type nextState uint64

// Next counts by a step.
type Next struct{ Step byte }

const kindNext = kindLast + 1

func (*Next) kind() kind { return kindNext }

// nextDelete is what of a deletion only the next version has, wherever the deletion stands: it may
// be counted as a step of 1.
type nextDelete struct{ Counted bool }

// deleteCounted is the flag of a deletion that is counted.
const deleteCounted = deleteEnd << 1

func (n nextDelete) flags() byte { return encoding.Flag(n.Counted, deleteCounted) }

func (d *decoder) deleteFlags(known byte) (byte, nextDelete) {
	if d.Version() >= sinceNext {
		known |= deleteCounted
	}
	f := d.Flags("a deletion", known)
	return f, nextDelete{Counted: f&deleteCounted != 0}
}

func (m *Machine) deletedNext(n nextDelete) {
	if n.Counted {
		m.applyNext(&Next{Step: 1})
	}
}

func appendNext(b []byte, c Command) []byte {
	next, ok := c.(*Next)
	if !ok {
		panic(fmt.Sprintf("fsm: no encoding for %T", c))
	}
	return append(b, next.Step)
}

func (d *decoder) next(k kind) Command {
	if k != kindNext || d.Version() < sinceNext {
		d.Unknown("a command of kind", uint64(k))
		return nil
	}
	return &Next{Step: d.Byte()}
}

func (m *Machine) applyNext(c Command) Result {
	m.version.next += nextState(c.(*Next).Step)
	m.meta.changed = true
	return Result{Value: uint64(m.version.next)}
}

// versionNext is the flag of the count in a snapshot.
const versionNext = versionFell << 1

func appendVersion(b []byte, v ClusterVersion) []byte {
	if v.next == 0 {
		return appendDecided(b, v, 0)
	}
	return binary.AppendUvarint(appendDecided(b, v, versionNext), uint64(v.next))
}

func (d *decoder) clusterVersion() ClusterVersion {
	known := versionFlags
	if d.Version() >= sinceNext {
		known |= versionNext
	}
	v, flags := d.decided(known)
	if flags&versionNext != 0 {
		v.next = nextState(d.Uvarint())
	}
	return v
}
