package sim

import (
	"errors"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// The events of interest that the checkers count in a history. Together with the
// kinds of fault they are what a campaign must have seen.
const (
	SeenExpired         = "a lease expired"
	SeenExpiredKeys     = "a lease expired with two keys or more"
	SeenRevoked         = "a lease was revoked"
	SeenCheckpoint      = "a checkpoint was set"
	SeenCleared         = "a checkpoint was cleared by a renewal"
	SeenCheckpointEnd   = "a checkpointed lease expired under a later leader"
	SeenInFlight        = "the leader changed with an expiring lease in flight"
	SeenStale           = "an internal command of another term was dropped"
	SeenLeaders         = "the leader changed"
	SeenRefresh         = "a clock jumped and leases were refreshed"
	SeenUnknown         = "a command without an answer took effect"
	SeenLost            = "a command without an answer was lost"
	SeenFailed          = "a command failed for certain"
	SeenForwarded       = "a command came through another member"
	SeenRetry           = "a grant was repeated and got the first lease"
	SeenNameHeld        = "a name was refused because it was held"
	SeenNameAgain       = "a name was granted again"
	SeenPutLate         = "a put named a lease that was gone"
	SeenRenewNotFound   = "a renewal found no lease"
	SeenSerializable    = "a serializable read was behind"
	SeenSnapshot        = "a snapshot took the place of a state"
	SeenResume          = "a watch was resumed"
	SeenWatchCompacted  = "a watch ended as compacted"
	SeenLockHandover    = "a lock went from one holder to another"
	SeenRoleHandover    = "a role went from one holder to another"
	SeenBeliefOutlived  = "a holder stopped by its own clock before its lease ended"
	SeenRestart         = "a member started again"
	SeenJoin            = "a member started with an empty disk"
	SeenTokenCompare    = "a txn's compare failed"
	SeenLeaseRegranted  = "an id was granted again"
	SeenRenewInFailover = "a renewal was answered by another leader than it was sent under"
	SeenReleased        = "a lock delay passed"
	SeenKept            = "keys stayed when their lease expired"
	SeenHandedOver      = "a lease was handed over"
	SeenResumed         = "a lease was resumed"
	SeenShorter         = "a lease got a shorter TTL"
	SeenLonger          = "a lease got a longer TTL"
	SeenTouched         = "a transaction renewed a lease"
	SeenOldToken        = "a renewal had the token of another life"
	SeenTooOld          = "events of leases were not kept any more"
	SeenOnce            = "a write was sent again and not done again"
	SeenOnceLater       = "a write was sent again under a later leader and not done again"
	SeenOnceToken       = "a lease was to have another holder again and had not"
	SeenBound           = "a lease ended with its only key"
	SeenSettled         = "a write came after it was settled"
	SeenDrawn           = "a transaction drew a token"
	SeenDrawnNot        = "a transaction that was to draw a token was refused"
	SeenTurnFirst       = "a turn had come when it was asked for"
	SeenTurnAfter       = "a turn came as another went"
	SeenTurnCome        = "a turn came, nobody knows by whose going"
	SeenTurnExpired     = "a place in a line went with a lease that expired"
	SeenTurnRevoked     = "a place in a line went with a lease that was revoked"
	SeenTurnGone        = "a place in a line was given up or let go"
	SeenTurnDue         = "who waits in a line had to be told in time"
)

// Interesting lists the events that a campaign must have seen.
var Interesting = []string{
	SeenExpired, SeenExpiredKeys, SeenRevoked, SeenCheckpoint, SeenCleared, SeenCheckpointEnd,
	SeenInFlight, SeenLeaders, SeenRefresh, SeenUnknown, SeenLost, SeenForwarded,
	SeenRetry, SeenNameHeld, SeenNameAgain, SeenPutLate, SeenRenewNotFound, SeenSerializable,
	SeenSnapshot, SeenResume, SeenWatchCompacted, SeenLockHandover, SeenRoleHandover,
	SeenBeliefOutlived, SeenRestart, SeenJoin, SeenTokenCompare, SeenRenewInFailover,
	SeenReleased, SeenKept, SeenHandedOver, SeenResumed, SeenShorter, SeenLonger, SeenTouched,
	SeenOldToken, SeenTooOld, SeenOnce, SeenOnceToken, SeenBound, SeenDrawn, SeenDrawnNot,
	SeenTurnFirst, SeenTurnAfter, SeenTurnCome, SeenTurnExpired, SeenTurnRevoked, SeenTurnGone,
	SeenTurnDue,
}

// look counts the events of interest.
func (f *facts) look() {
	f.lookLog()
	f.lookFates()
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
		f.seenIf(i > 0 && e.Term != f.h.Log[i-1].Term, SeenLeaders)
		for k, c := range e.Commands {
			r := &f.outcomes[i][k]
			f.seenIf(k < len(e.Origins) && e.Origins[k].Member != 0, SeenForwarded)
			f.seenIf(fsm.Internal(c) && errors.Is(r.err, fsm.ErrStale), SeenStale)
			if o, ok := c.(*fsm.Once); ok {
				f.lookOnce(first, o, e, r)
			}
			if r.txn != nil && len(r.txn.tokens) > 0 && !r.repeated {
				f.seenIf(r.err == nil, SeenDrawn)
				f.seenIf(r.err != nil, SeenDrawnNot)
			}
			if p, ok := c.(*fsm.Put); ok {
				f.seenIf(p.Lease != 0 && errors.Is(r.err, lease.ErrNotFound), SeenPutLate)
			}
			if x, ok := c.(*fsm.Expire); ok {
				// Its entry was cut in its leader's term and applied first in a later one.
				f.seenIf(x.Term == e.Term && f.termAt(e.At) > e.Term, SeenInFlight)
				f.seenIf(len(r.steps) < len(x.Leases), SeenStale)
			}
		}
	}
	for _, l := range f.lives {
		if l.delayed {
			f.seenIf(l.expired, SeenReleased)
			continue
		}
		f.seenIf(l.expired, SeenExpired)
		f.seenIf(l.until != Never && !l.expired && l.succeeded == nil, SeenRevoked)
		f.lookCheckpoints(l)
	}
}

// lookOnce counts what came of a write with a number; first has the terms in which the
// numbers of each session were done.
func (f *facts) lookOnce(first map[[2]uint64]uint64, c *fsm.Once, e *Entry, r *modelResult) {
	number := [2]uint64{c.Session.Nonce, c.Number}
	switch {
	case r.repeated:
		f.seen(SeenOnce)
		switch c.Command.(type) {
		case *fsm.HandOver, *fsm.Resume:
			f.seenIf(r.err == nil, SeenOnceToken)
		}
		f.seenIf(first[number] < e.Term, SeenOnceLater)
	case errors.Is(r.err, fsm.ErrSessionNotFound):
		f.seen(SeenSettled)
	default:
		first[number] = e.Term
	}
}

// termAt is the highest term in which some member led at an instant.
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

// lookFates counts what became of leases but for their ends.
func (f *facts) lookFates() {
	for _, s := range f.fates {
		f.seenIf(s.kind == fsm.LeaseHandedOver, SeenHandedOver)
		f.seenIf(s.kind == fsm.LeaseResumed, SeenResumed)
		f.seenIf(s.by == fsm.ByKey, SeenBound)
		f.seenIf(s.keep && len(s.keys) > 0 && s.kind != fsm.LeaseRevoked, SeenKept)
	}
	for _, l := range f.lives {
		for i := 1; i < len(l.terms); i++ {
			f.seenIf(l.terms[i].ttl < l.terms[i-1].ttl, SeenShorter)
			f.seenIf(l.terms[i].ttl > l.terms[i-1].ttl, SeenLonger)
			f.seenIf(l.terms[i].ttl == l.terms[i-1].ttl, SeenTouched)
		}
	}
}

func (f *facts) lookCheckpoints(l *life) {
	set := -1
	for _, c := range l.checkpointed {
		f.seenIf(c.remaining > 0, SeenCheckpoint)
		f.seenIf(c.remaining == 0 && set >= 0, SeenCleared)
		set = c.entry
		if c.remaining == 0 {
			set = -1
		}
	}
	if !l.expired {
		return
	}
	e := f.h.Log[l.ended]
	f.seenIf(set >= 0 && f.h.Log[set].Term < e.Term, SeenCheckpointEnd)
	keys := 0
	for _, ev := range e.Ended {
		if ev.ID == l.id {
			keys = len(ev.Keys)
		}
	}
	f.seenIf(keys > 1, SeenExpiredKeys)
}

func (f *facts) lookOps() {
	for _, op := range f.h.Ops {
		p, logged := f.entryOf[op.ID]
		switch {
		case op.Kind == OpCommand && op.Outcome == Unknown:
			f.seenIf(logged, SeenUnknown)
			f.seenIf(!logged, SeenLost)
		case op.Kind == OpCommand && op.Outcome == Failed:
			f.seen(SeenFailed)
		case op.Kind == OpCommand && logged:
			f.lookCommand(op, &f.outcomes[p.entry][p.command])
		case op.Kind == OpRenew && op.Outcome == Done:
			f.seenIf(errors.Is(op.Err, lease.ErrNotFound), SeenRenewNotFound)
			n := f.seenAt(op.Start - 1)
			l := f.lifeAt(op.Lease, n-1)
			f.seenIf(l != nil && op.Request.Token != 0 && op.Request.Token < l.token, SeenOldToken)
			f.seenIf(op.Err == nil && f.termAt(op.Start) < f.termAt(op.Answered), SeenRenewInFailover)
		case op.Kind == OpEvents:
			f.seenIf(op.Err != nil && op.Outcome == Done, SeenTooOld)
		case op.Kind == OpRange && op.Outcome == Done && op.Serializable && op.Err == nil:
			n := f.seenAt(op.Start - 1)
			f.seenIf(op.Answer.Range.Revision < f.revisionOf(n), SeenSerializable)
		}
	}
}

func (f *facts) lookCommand(op *Op, r *modelResult) {
	switch c := op.Command.(type) {
	case *fsm.Grant:
		var held *lease.NameError
		f.seenIf(errors.As(r.err, &held), SeenNameHeld)
		if r.lease != nil {
			l := f.byToken(r.lease.id, r.lease.token)
			p := f.entryOf[op.ID]
			f.seenIf(c.Terms.RequestID != "" && l != nil && l.granted < p.entry, SeenRetry)
		}
	case *fsm.Txn:
		f.seenIf(r.txn != nil && !r.txn.succeeded, SeenTokenCompare)
	}
}

func (f *facts) lookMembers() {
	for _, l := range f.h.Lives {
		f.seenIf(l.Up && !l.Fresh && l.At > 0, SeenRestart)
		f.seenIf(l.Up && l.Fresh, SeenJoin)
	}
	for _, a := range f.h.Applied {
		f.seenIf(a.Snapshot, SeenSnapshot)
	}
	for _, r := range f.h.Roles {
		f.seenIf(r.Refresh, SeenRefresh)
		f.lookInFlight(r)
	}
	for id, list := range f.byID {
		f.seenIf(id != 0 && len(list) > 1, SeenLeaseRegranted)
	}
}

// lookInFlight looks for a new leader that comes while the decision of an earlier
// one to expire is in the log, or lost with it.
func (f *facts) lookInFlight(r Role) {
	if !r.Promoted {
		return
	}
	// The decision of an earlier term that is applied just before the promotion,
	// or the lease that was due before it and ends after it.
	n := f.seenAt(r.At)
	for i := n - 1; i >= max(0, n-3); i-- {
		e := f.h.Log[i]
		for _, c := range e.Commands {
			if _, ok := c.(*fsm.Expire); ok && e.Term < r.Term {
				f.seen(SeenInFlight)
				return
			}
		}
	}
}

func (f *facts) lookHolders() {
	names := make(map[string]int)
	for _, l := range f.lives {
		if l.name != "" {
			names[l.name]++
			f.seenIf(names[l.name] > 1, SeenNameAgain)
		}
	}
	last := make(map[string]*Belief)
	for _, b := range f.h.Beliefs {
		was := last[b.name()]
		handed := was != nil && was.Client != b.Client
		f.seenIf(handed && b.Kind == BeliefLock, SeenLockHandover)
		f.seenIf(handed && b.Kind == BeliefRole, SeenRoleHandover)
		last[b.name()] = b
		for _, l := range f.byID[b.Lease] {
			f.seenIf(l.token == b.Token && l.expired && !b.Released && b.Until <= l.until,
				SeenBeliefOutlived)
		}
	}
	for _, w := range f.h.Watches {
		f.seenIf(w.Resumes >= 0, SeenResume)
		f.seenIf(w.Compacted > 0, SeenWatchCompacted)
	}
}
