package sim

import (
	"errors"
	"fmt"
	"maps"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/replica"
	"leasehold.dev/internal/version"
)

// This file covers the cluster version: the versions supported by members, and a client that holds
// and releases the cluster version.

// speaks returns the range of cluster versions that a member announces. One member claims to be a
// later release, so that the version can be held and released. The version is never raised, because
// the other members do not support a later one.
func (w *world) speaks(id uint64) version.Range {
	switch {
	case !w.p.Versions:
		return version.Range{}
	case id == 2:
		return version.Range{Oldest: version.Oldest, Newest: version.Newest + 1}
	default:
		return version.Spoken
	}
}

// announce announces the versions supported by a new member. A real member does this itself once it
// has caught up.
func (t *thread) announce(id uint64) {
	speaks := t.c.w.speaks(id)
	t.insist(&fsm.SetMember{Member: fsm.Member{ID: id, Versions: speaks}}, func(v *fsm.View) bool {
		n, ok := v.Member(id)
		return !ok || n.Versions == speaks
	})
}

// versionOperator occasionally holds the cluster version and releases it again.
func (t *thread) versionOperator() {
	w := t.c.w
	for {
		t.sleep(w.exp(2 * Second))
		held := w.oracle.machine.Version().Held
		if w.injector.calm && !held {
			return
		}
		t.command(&fsm.SetVersion{Version: version.Oldest, Hold: !held})
	}
}

// versioned counts a change of the cluster version.
func (o *oracle) versioned(before fsm.ClusterVersion) {
	now := o.machine.Version()
	o.w.tracef("the cluster version is %d, held %v", now.Number, now.Held)
	cover := o.w.cover
	switch {
	case now.Held && now.Fell:
		cover["cluster version lowered"]++
		fallthrough
	case now.Held:
		cover["cluster version held"]++
	case before.Held:
		cover["cluster version let go"]++
	default:
		cover["cluster version raised"]++
	}
}

// unfit checks that no command was rejected as invalid. Clients request nothing that is too large
// or that the oldest cluster version does not support.
func (q *call) unfit(r *replica.Proposal) {
	if errors.Is(r.Err, replica.ErrVersion) || errors.Is(r.Err, replica.ErrTooLarge) {
		q.c.w.broken("V1", fmt.Sprintf("member %d refuses %s: %v", q.op.Member, show(r.Command), r.Err))
	}
}

// settled checks that the cluster version is the newest version supported by all members, provided
// that neither that version nor the supported versions have changed for a while.
func (w *world) settled() {
	if c := w.oracle.machine.DueVersion(); c != nil && w.oracle.versionChangedAt+2*Second < w.now {
		w.broken("V1", fmt.Sprintf("the cluster version is %d, and nobody raises it to %d",
			w.oracle.machine.Version().Number, c.Version))
	}
}

// versions derives the cluster version from the log alone.
type versions struct {
	number  byte
	held    bool
	members map[uint64]version.Range
}

// checkVersions checks V1: the cluster version only changes according to its rules, and every entry
// carries the cluster version in effect at its position in the log.
func (f *facts) checkVersions() {
	r := versions{number: version.Oldest, members: make(map[uint64]version.Range)}
	maps.Copy(r.members, f.h.Speak)
	for _, e := range f.h.Log {
		if e.Version != 0 && e.Version != r.number {
			f.violate(e.At, "V1", "entry %d (term %d) is of version %d, and the cluster's is %d",
				e.Index, e.Term, e.Version, r.number)
		}
		for k, c := range e.Commands[:len(e.Results)] {
			if why := r.apply(c, e.Results[k].Err); why != "" {
				f.violate(e.At, "V1", "entry %d (term %d): %s while the version is %d, held %v: %s",
					e.Index, e.Term, show(c), r.number, r.held, why)
			}
		}
	}
}

// apply applies a command and describes what is wrong with its outcome, if anything.
func (r *versions) apply(c fsm.Command, err error) (why string) {
	switch c := c.(type) {
	case *fsm.SetVersion:
		if may := r.may(c); may != (err == nil) {
			return fmt.Sprintf("the outcome is %v", err)
		}
		if err == nil {
			r.number, r.held = c.Version, c.Hold
		}
	case *fsm.AddMember:
		if err == nil {
			r.members[c.Member.ID] = c.Member.Versions
		}
	case *fsm.RemoveMember:
		if err == nil {
			delete(r.members, c.ID)
		}
	case *fsm.SetMember:
		if err == nil && c.Member.Versions.Known() {
			r.members[c.Member.ID] = c.Member.Versions
		}
	}
	return ""
}

// may reports whether a change of the cluster version is allowed. Every member whose versions are
// known must support the new version. There are three cases:
//
//   - The version can be held, at the current number or below, while a member supports a newer
//     one.
//   - A held version can be released without changing the number.
//   - A version that is not held can be raised once every member has announced its versions.
func (r *versions) may(c *fsm.SetVersion) bool {
	newer, unknown := false, false
	for _, n := range r.members {
		if n.Known() && !n.Has(c.Version) {
			return false
		}
		newer, unknown = newer || n.Newest > c.Version, unknown || !n.Known()
	}
	switch {
	case c.Hold:
		return !r.held && c.Version <= r.number && newer
	case c.Version == r.number:
		return r.held
	default:
		return !r.held && c.Version > r.number && !unknown
	}
}
