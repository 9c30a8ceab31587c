package server

import (
	"cmp"
	"fmt"
	"slices"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/member/identity"
	"leasehold.dev/internal/version"
)

// These errors mean that a member needs another release. [New] and [Server.Run] return them. The
// data is unchanged, because a release does not modify data that it cannot read. Restarting the
// member does not help.
var (
	// ErrTooOld means that this release is too old for the member. A newer release has written
	// something to the member's data or to the cluster's log that this release cannot read.
	ErrTooOld = identity.ErrTooOld
	// ErrUnsupportedVersion means that this release does not support the version of the member's
	// cluster.
	ErrUnsupportedVersion = identity.ErrUnsupportedVersion
)

// logVersion logs decisions about the cluster version, and which members a decision is waiting for.
func (c *core) logVersion(old, v *fsm.View) {
	if old.Version.Number != v.Version.Number || old.Version.Held != v.Version.Held {
		c.log.Info("the cluster version has changed", "version", version.Name(v.Version.Number),
			"before", version.Name(old.Version.Number), "held-for-downgrade", v.Version.Held)
	}
	behind := v.Behind()
	if len(behind) > 0 && !slices.Equal(behind, old.Behind()) {
		c.log.Info("the new cluster version is waiting for these members: start them with the newer "+
			"release, or remove them", "version", version.Name(v.Version.Number),
			"members", names(v, behind))
	}
}

// names returns the names of members. A member that has never started is represented by its ID.
func names(v *fsm.View, ids []uint64) []string {
	list := make([]string, len(ids))
	for i, id := range ids {
		m, _ := v.Member(id)
		list[i] = cmp.Or(m.Name, fmt.Sprintf("%x", id))
	}
	return list
}
