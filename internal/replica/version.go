package replica

import "leasehold.dev/internal/fsm"

// The cluster version says what this member may write. A leader with a change of it in the log
// proposes nothing until that is applied, so no entry after the change can have the version before
// it. A new leader also proposes nothing until it has applied everything in its log. The queue and
// the leadership ensure this.
//
// A member that missed a fall of the cluster version still has the old one, and others may run an
// earlier release by then. They must understand its messages about its log and its vote, or it
// never catches up, and the requests of its clients, or those wait in vain. So Raft's messages use
// the first version, which has not changed them; entries in them have their own versions. Requests
// and replies in a term also use it, until an entry of that term is applied here.

// has reports whether a cluster version has a command. Tests replace it to simulate a later
// release.
var has = fsm.Has

// firstVersion is the version that all releases can decode.
const firstVersion = 1

// version returns the cluster version as of the last entry of the current term, or the first
// version if none is applied here. The leader of the term still understands it: it applied the
// entry in that version, and a restart as another release would have cost it the term.
func (m *local) version() byte {
	if m.machine.Term() != m.term {
		return firstVersion
	}
	return m.machine.Version().Number
}
