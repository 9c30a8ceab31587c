package sim

import (
	"errors"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// The events that the checkers count in a history. Like the kinds of faults, all of them must occur
// in a campaign.
const (
	seenExpired         = "a lease expired"
	seenExpiredKeys     = "a lease expired with two keys or more"
	seenRevoked         = "a lease was revoked"
	seenCheckpoint      = "a checkpoint was set"
	seenCleared         = "a checkpoint was cleared by a renewal"
	seenCheckpointEnd   = "a checkpointed lease expired under a later leader"
	seenRestarted       = "a silent lease was there when all members started again"
	seenInFlight        = "the leader changed with an expiring lease in flight"
	seenStale           = "an internal command of another term was dropped"
	seenLeaders         = "the leader changed"
	seenRefresh         = "a clock jumped and leases were refreshed"
	seenUnknown         = "a command without an answer took effect"
	seenLost            = "a command without an answer was lost"
	seenFailed          = "a command failed for certain"
	seenForwarded       = "a command came through another member"
	seenRetry           = "a grant was repeated and got the first lease"
	seenNameHeld        = "a name was refused because it was held"
	seenNameAgain       = "a name was granted again"
	seenPutLate         = "a put named a lease that was gone"
	seenRenewNotFound   = "a renewal found no lease"
	seenSerializable    = "a serializable read was behind"
	seenSnapshot        = "a snapshot took the place of a state"
	seenResume          = "a watch was resumed"
	seenWatchCompacted  = "a watch ended as compacted"
	seenLockHandover    = "a lock went from one holder to another"
	seenRoleHandover    = "a role went from one holder to another"
	seenBeliefOutlived  = "a holder stopped by its own clock before its lease ended"
	seenRestart         = "a member started again"
	seenJoin            = "a member started with an empty disk"
	seenTokenCompare    = "a txn's compare failed"
	seenLeaseRegranted  = "an id was granted again"
	seenRenewInFailover = "a renewal was answered by another leader than it was sent under"
	seenReleased        = "a lock delay passed"
	seenKept            = "keys stayed when their lease expired"
	seenHandedOver      = "a lease was handed over"
	seenResumed         = "a lease was resumed"
	seenShorter         = "a lease got a shorter TTL"
	seenLonger          = "a lease got a longer TTL"
	seenTouched         = "a transaction renewed a lease"
	seenOldToken        = "a renewal had the token of another incarnation"
	seenTooOld          = "events of leases were not kept any more"
	seenOnce            = "a write was sent again and not done again"
	seenOnceLater       = "a write was sent again under a later leader and not done again"
	seenOnceToken       = "a lease was to have another holder again and had not"
	seenBound           = "a lease ended with its only key"
	seenSettled         = "a write came after it was settled"
	seenDrawn           = "a transaction drew a token"
	seenDrawnNot        = "a transaction that was to draw a token was refused"
	seenReadyFirst      = "a permit was free when it was asked for"
	seenReadyAfter      = "a permit came as another waiter left"
	seenReady           = "a permit came, not known by whose leaving"
	seenWaitExpired     = "a waiter's key went with a lease that expired"
	seenWaitRevoked     = "a waiter's key went with a lease that was revoked"
	seenWaitGone        = "a waiter's key was deleted or detached"
	seenWaitDue         = "a waiter had to be told in time"
)

// interesting lists the events that must occur in a campaign.
var interesting = []string{
	seenExpired, seenExpiredKeys, seenRevoked, seenCheckpoint, seenCleared, seenCheckpointEnd,
	seenInFlight, seenLeaders, seenRefresh, seenUnknown, seenLost, seenForwarded,
	seenRetry, seenNameHeld, seenNameAgain, seenPutLate, seenRenewNotFound, seenSerializable,
	seenSnapshot, seenResume, seenWatchCompacted, seenLockHandover, seenRoleHandover,
	seenBeliefOutlived, seenRestart, seenJoin, seenTokenCompare, seenRenewInFailover,
	seenReleased, seenKept, seenHandedOver, seenResumed, seenShorter, seenLonger, seenTouched,
	seenOldToken, seenTooOld, seenOnce, seenOnceToken, seenBound, seenDrawn, seenDrawnNot,
	seenReadyFirst, seenReadyAfter, seenReady, seenWaitExpired, seenWaitRevoked, seenWaitGone,
	seenWaitDue, seenRestarted,
}

// look counts the events of interest.
func (f *facts) look() {
	f.lookLog()
	f.lookLeaseEvents()
	f.lookOps()
	f.lookMembers()
	f.lookHolders()
}

func (f *facts) seen(what string) { f.report.Seen[what]++ }

func (f *facts) seenIf(yes bool, what string) {
	if yes {
		f.report.Seen[what]++
	}
}

func (f *facts) lookLog() {
	first := make(map[[2]uint64]uint64)
	for i, e := range f.h.Log {
		f.seenIf(i > 0 && e.Term != f.h.Log[i-1].Term, seenLeaders)
		for k, c := range e.Commands {
			r := &f.outcomes[i][k]
			f.seenIf(k < len(e.Origins) && e.Origins[k].Member != 0, seenForwarded)
			f.seenIf(fsm.Internal(c) && errors.Is(r.err, fsm.ErrStale), seenStale)
			if o, ok := c.(*fsm.Once); ok {
				f.lookOnce(first, o, e, r)
			}
			if r.txn != nil && len(r.txn.tokens) > 0 && !r.repeated {
				f.seenIf(r.err == nil, seenDrawn)
				f.seenIf(r.err != nil, seenDrawnNot)
			}
			if p, ok := c.(*fsm.Put); ok {
				f.seenIf(p.Lease != 0 && errors.Is(r.err, lease.ErrNotFound), seenPutLate)
			}
			if x, ok := c.(*fsm.Expire); ok {
				// The entry was created in its leader's term and first applied in a later term.
				f.seenIf(x.Term == e.Term && f.termAt(e.At) > e.Term, seenInFlight)
				f.seenIf(len(r.steps) < len(x.Leases), seenStale)
			}
		}
	}
	for _, l := range f.incarnations {
		if l.delayed {
			f.seenIf(l.expired, seenReleased)
			continue
		}
		f.seenIf(l.expired, seenExpired)
		f.seenIf(l.until != Never && !l.expired && l.succeeded == nil, seenRevoked)
		f.lookCheckpoints(l)
	}
}

// lookOnce counts the outcomes of a numbered write. first maps each session's numbers to the term
// in which the write was first performed.
func (f *facts) lookOnce(first map[[2]uint64]uint64, c *fsm.Once, e *Entry, r *modelResult) {
	number := [2]uint64{c.Session.Nonce, c.Number}
	switch {
	case r.repeated:
		f.seen(seenOnce)
		switch c.Command.(type) {
		case *fsm.HandOver, *fsm.Resume:
			f.seenIf(r.err == nil, seenOnceToken)
		}
		f.seenIf(first[number] < e.Term, seenOnceLater)
	case errors.Is(r.err, fsm.ErrSessionNotFound):
		f.seen(seenSettled)
	default:
		first[number] = e.Term
	}
}

// termAt returns the highest term that had a leader at an instant.
func (f *facts) termAt(at Time) (term uint64) {
	for _, r := range f.h.Roles {
		if r.At > at {
			break
		}
		if r.Leading {
			term = max(term, r.Term)
		}
	}
	return term
}

// lookLeaseEvents counts lease events except ends.
func (f *facts) lookLeaseEvents() {
	for _, s := range f.leaseEvents {
		f.seenIf(s.kind == fsm.LeaseHandedOver, seenHandedOver)
		f.seenIf(s.kind == fsm.LeaseResumed, seenResumed)
		f.seenIf(s.by == fsm.ByKey, seenBound)
		f.seenIf(s.KeepKeys && len(s.keys) > 0 && s.kind != fsm.LeaseRevoked, seenKept)
	}
	for _, l := range f.incarnations {
		for i := 1; i < len(l.terms); i++ {
			f.seenIf(l.terms[i].ttl < l.terms[i-1].ttl, seenShorter)
			f.seenIf(l.terms[i].ttl > l.terms[i-1].ttl, seenLonger)
			f.seenIf(l.terms[i].ttl == l.terms[i-1].ttl, seenTouched)
		}
	}
}

func (f *facts) lookCheckpoints(l *incarnation) {
	set := -1
	for _, c := range l.checkpointed {
		f.seenIf(c.remaining > 0, seenCheckpoint)
		f.seenIf(c.remaining == 0 && set >= 0, seenCleared)
		set = c.entry
		if c.remaining == 0 {
			set = -1
		}
	}
	if !l.expired {
		return
	}
	e := f.h.Log[l.ended]
	f.seenIf(set >= 0 && f.h.Log[set].Term < e.Term, seenCheckpointEnd)
	keys := 0
	for _, ev := range e.Ended {
		if ev.ID == l.ID {
			keys = len(ev.Keys)
		}
	}
	f.seenIf(keys > 1, seenExpiredKeys)
}

func (f *facts) lookOps() {
	for _, op := range f.h.Ops {
		p, logged := f.entryOf[op.ID]
		switch {
		case op.Kind == opCommand && op.Outcome == Unknown:
			f.seenIf(logged, seenUnknown)
			f.seenIf(!logged, seenLost)
		case op.Kind == opCommand && op.Outcome == Failed:
			f.seen(seenFailed)
		case op.Kind == opCommand && logged:
			f.lookCommand(op, &f.outcomes[p.entry][p.command])
		case op.Kind == opRenew && op.Outcome == Done:
			f.seenIf(errors.Is(op.Err, lease.ErrNotFound), seenRenewNotFound)
			n := f.seenAt(op.Start - 1)
			l := f.incarnationAt(op.Lease, n-1)
			f.seenIf(l != nil && op.Request.Token != 0 && op.Request.Token < l.token, seenOldToken)
			f.seenIf(op.Err == nil && f.termAt(op.Start) < f.termAt(op.Answered), seenRenewInFailover)
		case op.Kind == opEvents:
			f.seenIf(op.Err != nil && op.Outcome == Done, seenTooOld)
		case op.Kind == opRange && op.Outcome == Done && op.Serializable && op.Err == nil:
			n := f.seenAt(op.Start - 1)
			f.seenIf(op.Answer.Range.Revision < f.revisionOf(n), seenSerializable)
		}
	}
}

func (f *facts) lookCommand(op *Op, r *modelResult) {
	switch c := op.Command.(type) {
	case *fsm.Grant:
		var held *lease.NameError
		f.seenIf(errors.As(r.err, &held), seenNameHeld)
		if r.lease != nil {
			l := f.byToken(r.lease.ID, r.lease.token)
			p := f.entryOf[op.ID]
			f.seenIf(c.Terms.RequestID != "" && l != nil && l.granted < p.entry, seenRetry)
		}
	case *fsm.Txn:
		f.seenIf(r.txn != nil && !r.txn.succeeded, seenTokenCompare)
	}
}

func (f *facts) lookMembers() {
	for _, l := range f.h.Restarts {
		f.seenIf(l.Up && !l.Fresh && l.At > 0, seenRestart)
		f.seenIf(l.Up && l.Fresh, seenJoin)
	}
	for _, a := range f.h.Applied {
		f.seenIf(a.Snapshot, seenSnapshot)
	}
	for _, r := range f.h.Roles {
		f.seenIf(r.Refresh, seenRefresh)
		f.lookInFlight(r)
	}
	for id, list := range f.byID {
		f.seenIf(id != 0 && len(list) > 1, seenLeaseRegranted)
	}
}

// lookInFlight detects that a leader was promoted just after an expiry of an earlier term was
// applied.
func (f *facts) lookInFlight(r Role) {
	if !r.Promoted {
		return
	}
	n := f.seenAt(r.At)
	for i := n - 1; i >= max(0, n-3); i-- {
		e := f.h.Log[i]
		for _, c := range e.Commands {
			if _, ok := c.(*fsm.Expire); ok && e.Term < r.Term {
				f.seen(seenInFlight)
				return
			}
		}
	}
}

func (f *facts) lookHolders() {
	names := make(map[string]int)
	for _, l := range f.incarnations {
		if l.Name != "" {
			names[l.Name]++
			f.seenIf(names[l.Name] > 1, seenNameAgain)
		}
	}
	last := make(map[string]*Belief)
	for _, b := range f.h.Beliefs {
		was := last[b.name()]
		handed := was != nil && was.Client != b.Client
		f.seenIf(handed && b.Kind == beliefLock, seenLockHandover)
		f.seenIf(handed && b.Kind == beliefRole, seenRoleHandover)
		last[b.name()] = b
		for _, l := range f.byID[b.Lease] {
			f.seenIf(l.token == b.Token && l.expired && !b.Released && b.Until <= l.until,
				seenBeliefOutlived)
		}
	}
	for _, w := range f.h.Watches {
		f.seenIf(w.Resumes >= 0, seenResume)
		f.seenIf(w.Compacted > 0, seenWatchCompacted)
	}
}
