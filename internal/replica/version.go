package replica

import "leasehold.dev/internal/fsm"

// The cluster version determines what this member can write. While a leader's log contains an
// unapplied change of the version, the leader proposes nothing, so no entry after the change can
// have the old version. For the same reason, a new leader proposes nothing until it has applied
// everything in its log. The queue and the leadership ensure this.
//
// A member that missed a downgrade of the cluster version still has the old version, while others
// may already run an earlier release. If they could not decode this member's messages about its log
// and vote, it would never catch up. If they could not decode its clients' requests, those would
// never be answered. So Raft's messages always use the first version, since their format has not
// changed. The entries in them have their own versions. Requests and replies also use the first
// version, until an entry of the current term has been applied on this member.

// has reports whether a cluster version includes a command. Tests replace it to simulate a later
// release.
var has = fsm.Has

// firstVersion is the version that all releases can decode.
const firstVersion = 1

// version returns the cluster version as of the last entry of the current term, or the first
// version if no entry of the term has been applied on this member. The leader of the term
// understands that version: it applied the entry, and restarting with another release would have
// ended its term.
func (m *local) version() byte {
	if m.machine.Term() != m.term {
		return firstVersion
	}
	return m.machine.Version().Number
}
