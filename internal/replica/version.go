package replica

import (
	"fmt"

	"leasehold.dev/internal/fsm"
)

// The cluster version says what this member may write. A leader that has a change of it in the log
// proposes nothing before that is applied, so no entry behind the change can be of the version
// before it. A new leader proposes nothing either before it has applied all that is in its log.

// proposeVersion proposes the change of the cluster version for which it is time, if there is one
// and none is under way.
func (r *Replica) proposeVersion() {
	if !r.primary || r.timers.versioning {
		return
	}
	if c := r.machine.DueVersion(); c != nil {
		r.timers.versioning = true
		r.proposeInternal(c, func(bool) { r.timers.versioning = false })
	}
}

// vetEntry says why the commands of an entry cannot be applied although they can be read.
func (r *Replica) vetEntry() error {
	if v := r.machine.Version().Number; r.scratch.reader.Version() > v {
		return fmt.Errorf("%w: its version is %d, and the cluster's is %d", fsm.ErrCorrupt,
			r.scratch.reader.Version(), v)
	}
	return nil
}

// decides reports whether a command changes the cluster version.
func decides(c fsm.Command) bool {
	_, ok := c.(*fsm.SetVersion)
	return ok
}
