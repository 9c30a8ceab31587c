//go:build !next

package fsm

import "fmt"

// What the make-believe next release has more is in next.go. This one has nothing of it.

// nextState is what of the state only the next version has.
type nextState struct{}

// Only the next version reads it.
var _ = ClusterVersion{}.next

// nextDelete is what of a deletion only the next version has.
type nextDelete struct{}

// Only the next version reads it.
var _ = DeleteRange{}.nextDelete

func (nextDelete) flags() byte { return 0 }

func (d *decoder) deleteFlags(known byte) (byte, nextDelete) {
	return d.Flags("a deletion", known), nextDelete{}
}

func (m *Machine) deletedNext(nextDelete) {}

func appendNext(_ []byte, c Command) []byte { panic(fmt.Sprintf("fsm: no encoding for %T", c)) }

func (d *decoder) next(k kind) Command {
	d.Unknown("a command of kind", uint64(k))
	return nil
}

func (m *Machine) applyNext(Command) Result { panic("fsm: command of unknown type") }

func appendVersion(b []byte, v ClusterVersion) []byte { return appendDecided(b, v, 0) }

func (d *decoder) clusterVersion() ClusterVersion {
	v, _ := d.decided(versionFlags)
	return v
}
