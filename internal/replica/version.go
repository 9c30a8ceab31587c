package replica

import (
	"fmt"
	"slices"

	"leasehold.dev/internal/fsm"
)

// The cluster version says what this member may write. A leader that has a change of it in the log
// proposes nothing before that is applied, so no entry behind the change can be of the version
// before it. A new leader proposes nothing either before it has applied all that is in its log.

// firstVersion is the version that all releases read.
const firstVersion = 1

// versionOf returns the version of a message. A member that missed a fall of the cluster version
// still has the one before, and others may run an earlier release by then. They must understand
// what it says of its log, and its vote, or it never catches up, and what its clients ask, or they
// wait in vain. So Raft's messages are of the first version, which they have not changed since
// then: entries in them have versions of their own. And what is asked and answered in a term is,
// until an entry of that term is applied here.
func (r *Replica) versionOf(m *Message) byte {
	switch {
	case m.Raft != nil:
		return firstVersion
	case m.Forward != nil:
		return r.forward.version
	default:
		return r.shared()
	}
}

// shared returns the cluster version as of the last entry of the present term, the first version
// if none is applied here. Whoever leads in the term goes on understanding it: it was there when
// the version was that, and to start as another release would cost it the term.
func (r *Replica) shared() byte {
	if r.machine.Term() != r.term {
		return firstVersion
	}
	return r.machine.Version().Number
}

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

// decides reports whether a proposal changes the cluster version.
func (p *Proposal) decides() bool {
	_, ok := p.Command.(*fsm.SetVersion)
	return ok
}

// allowed returns the version of which a command may be that comes behind all that waits. A change
// that is on its way counts already if it makes that less.
func (r *Replica) allowed() byte {
	v := r.machine.Version().Number
	if r.ceiling != 0 {
		v = min(v, r.ceiling)
	}
	return v
}

// after returns the ceiling for what comes behind a command.
func (r *Replica) after(c fsm.Command) byte {
	set, ok := c.(*fsm.SetVersion)
	switch {
	case !ok:
		return r.ceiling
	case r.ceiling == 0:
		return set.Version
	default:
		return min(r.ceiling, set.Version)
	}
}

// decided says that a proposal has its outcome, or is not going to have one here. If it changes the
// cluster version that is mostly the one in the log, but it may have been refused before it got
// there. The ceiling stays while another one waits.
func (r *Replica) decided(p *Proposal) {
	if !p.decides() {
		return
	}
	r.deciding = r.deciding && slices.ContainsFunc(r.pending, func(b batch) bool {
		return slices.ContainsFunc(b.proposals, (*Proposal).decides)
	})
	if !r.deciding && !slices.ContainsFunc(r.waiting, (*Proposal).decides) {
		r.ceiling = 0
	}
}
