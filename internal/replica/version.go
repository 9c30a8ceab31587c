package replica

import "leasehold.dev/internal/fsm"

// The cluster version says what this member may write. A leader that has a change of it in the log
// proposes nothing before that is applied, so no entry behind the change can be of the version
// before it. A new leader proposes nothing either before it has applied all that is in its log. The
// queue and the leadership see to that.
//
// A member that missed a fall of the cluster version still has the one before, and others may run
// an earlier release by then. They must understand what it says of its log, and its vote, or it
// never catches up, and what its clients ask, or they wait in vain. So Raft's messages are of the
// first version, which they have not changed since then: entries in them have versions of their
// own. And what is asked and answered in a term is, until an entry of that term is applied here.

// has reports whether a cluster version has a command. Tests replace it by that of a later release.
var has = fsm.Has

// firstVersion is the version that all releases read.
const firstVersion = 1

// version returns the cluster version as of the last entry of the present term, the first version
// if none is applied here. The leader of the term goes on understanding it: it was there when
// the version was that, and to start as another release would cost it the term.
func (m *local) version() byte {
	if m.machine.Term() != m.term {
		return firstVersion
	}
	return m.machine.Version().Number
}
