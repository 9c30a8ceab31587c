package replica

import "leasehold.dev/internal/fsm"

// The cluster version determines what this member may write. While the log of a leader has an
// unapplied change of the version, the leader proposes nothing, so no entry after the change can
// have the old version. A new leader also proposes nothing until it has applied everything in its
// log. The queue and the leadership ensure this.
//
// A member that missed a downgrade of the cluster version still has the old version, while others
// may already run an earlier release. They must understand its messages about its log and its vote,
// or it never catches up, and the requests of its clients, or those are never answered. So Raft's
// messages always use the first version, since their format has not changed; entries in them have
// their own versions. Requests and replies in a term also use it, until an entry of that term is
// applied here.

// has reports whether a cluster version has a command. Tests replace it to simulate a later
// release.
var has = fsm.Has

// firstVersion is the version that all releases can decode.
const firstVersion = 1

// version returns the cluster version as of the last entry of the current term, or the first
// version if none is applied here. The leader of the term understands that version: it applied the
// entry, and a restart with another release would have ended its term.
func (m *local) version() byte {
	if m.machine.Term() != m.term {
		return firstVersion
	}
	return m.machine.Version().Number
}
