package sim

import (
	"fmt"
	"slices"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// String describes an incarnation for a violation report.
func (l *incarnation) String() string {
	out := fmt.Sprintf("lease %d (token %d, ttl %d ms) was %s at %v",
		l.ID, l.token, l.TTL, beginnings[l.began], l.from)
	switch {
	case l.until == Never:
	case l.expired:
		out += fmt.Sprintf(" and expired at %v", l.until)
	case l.succeeded != nil:
		out += fmt.Sprintf(" and %s at %v", beginnings[l.succeeded.began], l.until)
	default:
		out += fmt.Sprintf(" and was revoked at %v", l.until)
	}
	return out
}

var beginnings = map[fsm.LeaseEventKind]string{
	fsm.LeaseGranted: "granted", fsm.LeaseExpired: "delayed",
	fsm.LeaseHandedOver: "handed over", fsm.LeaseResumed: "resumed",
}

// checkExpiry checks L1: a lease expires only after a TTL has passed, on every clock within the
// bound, since its grant and since its last acknowledged renewal was sent. Its holder has stopped
// before the expiry.
func (f *facts) checkExpiry() {
	if !f.h.InBound {
		return
	}
	for _, l := range f.incarnations {
		if !l.expired {
			continue
		}
		for _, t := range l.terms {
			if f.kept(l, t.taken, t.ttl) > l.until {
				f.violate(l.until, "L1", "%v, %v after its TTL of %d ms began in entry %d",
					l, l.until-t.taken, t.ttl, t.entry+firstIndex)
			}
		}
		for _, op := range f.promises(l) {
			if f.kept(l, op.Start, op.TTL) > l.until {
				f.violate(l.until, "L1", "%v, %v after client %d began the renewal (operation %d) "+
					"that member %d acknowledged at %v", l, l.until-op.Start, op.Client, op.ID,
					op.Member, op.Answered)
			}
		}
	}
	f.checkValid()
}

// kept returns the instant at which a promised TTL stops counting. A shorter TTL that is requested
// later replaces the promise and starts a new countdown.
func (f *facts) kept(l *incarnation, from Time, ttl lease.TTL) Time {
	least, _ := f.span(ttl)
	until := from + least
	for _, t := range l.terms {
		if least, _ := f.span(t.ttl); t.at >= from {
			until = min(until, max(from, t.taken)+least)
		}
	}
	return until
}

// promises returns the acknowledged renewals of an incarnation.
func (f *facts) promises(l *incarnation) (out []*Op) {
	for _, op := range f.renewals[l.ID] {
		if op.Kind == opRenew && op.Outcome == Done && op.Err == nil && f.certain(l, op) {
			out = append(out, op)
		}
	}
	return out
}

// may reports whether a renewal may belong to an incarnation.
func (l *incarnation) may(op *Op) bool {
	return !l.delayed && (op.Request.Token == 0 || op.Request.Token == l.token) &&
		l.from <= op.Answered && op.Start <= l.until
}

// certain reports whether an acknowledged renewal can only belong to this incarnation. Another
// lease with the same ID may have existed between the renewal's start and its answer. For example,
// a renewal that waited at a paused member may reach the lease created by a late retry of the grant
// (T28).
func (f *facts) certain(l *incarnation, op *Op) bool {
	for _, other := range f.byID[l.ID] {
		if other.may(op) != (other == l) {
			return false
		}
	}
	return true
}

// checkValid compares the holders' beliefs with the times at which their leases ended.
func (f *facts) checkValid() {
	for _, b := range f.h.Beliefs {
		for _, l := range f.byID[b.Lease] {
			if l.token == b.Token && l.expired && l.until < b.Until && b.From < b.Until {
				f.violate(l.until, "L1", "%v, while client %d held %s until %v",
					l, b.Client, b.name(), b.Until)
			}
		}
	}
}

// name describes the thing that the client believes it holds.
func (b *Belief) name() string {
	kinds := [...]string{"lease ", "name ", "lock ", "role ", "permit of "}
	return kinds[b.Kind] + b.What
}

// touched returns the latest instant in a healthy stretch at which a renewal may have reached a
// leader. An unanswered renewal may have been delayed by a fault before the stretch.
func (f *facts) touched(l *incarnation, s Stretch) Time {
	last := l.from
	for _, t := range l.terms {
		if t.at <= s.To {
			last = max(last, t.at)
		}
	}
	for _, op := range f.renewals[l.ID] {
		if op.Start >= s.To {
			break
		}
		if op.Request.Token != 0 && op.Request.Token != l.token {
			continue
		}
		at := op.End
		users := op.Caller != access.Caller{}
		if op.relayed() && (op.End < s.From || f.l.Silence < l.most/5*2 || users) {
			// If the relay died, or the group ended for another reason, before the lease left the
			// group, later rounds may have renewed the lease too.
			_, later := f.span(l.most / 5 * 2)
			at += later
		}
		if op.Outcome != Done {
			at = max(op.Start, s.From) + f.l.Linger
		}
		last = max(last, min(at, s.To))
	}
	return last
}

// begun returns when the primary of a reign began to count down a lease, which is when it applied
// the last restart of the TTL up to the given instant or, if there is none, the grant. Other
// members may have applied it earlier if the primary's disk was not accepting entries.
func (f *facts) begun(l *incarnation, r reign, until Time) Time {
	entry := l.granted
	for _, t := range l.terms {
		if t.at <= until {
			entry = t.entry
		}
	}
	for _, a := range f.h.Applied {
		if a.Member == r.member && a.To >= firstIndex+uint64(entry) {
			return a.At
		}
	}
	return l.from
}

// reign is a period in which one member times leases without interruption.
type reign struct {
	member   uint64
	from, to Time
}

// reigns returns the periods in which one member is primary. Each ends with a crash, a loss of
// leadership, a clock jump, or the end of the run.
func (f *facts) reigns() []reign {
	var out []reign
	open := make(map[uint64]int)
	end := func(member uint64, at Time) {
		if i, ok := open[member]; ok {
			out[i].to = at
			delete(open, member)
		}
	}
	restarts := f.h.Restarts
	for _, r := range f.h.Roles {
		for len(restarts) > 0 && restarts[0].At <= r.At {
			end(restarts[0].Member, restarts[0].At)
			restarts = restarts[1:]
		}
		_, was := open[r.Member]
		if was && (!r.Primary || r.Refresh || r.Promoted) {
			end(r.Member, r.At)
			was = false
		}
		if r.Primary && !was {
			open[r.Member] = len(out)
			out = append(out, reign{member: r.Member, from: r.At, to: f.h.End})
		}
	}
	for ; len(restarts) > 0; restarts = restarts[1:] {
		end(restarts[0].Member, restarts[0].At)
	}
	return out
}

// checkLateness checks L2 and L7. In a healthy stretch, a primary ends each lease within a bounded
// time after its expiry, which is one TTL after its last renewal or the promotion, whichever is
// later. If a checkpointed lease stays silent, its remaining time counts from the instant at which
// the member applied the checkpoint.
func (f *facts) checkLateness() {
	for _, r := range f.reigns() {
		for _, s := range f.h.Healthy {
			from := max(s.From+f.l.Recovery, r.from)
			to := min(s.To, r.to)
			if from >= to {
				continue
			}
			for _, l := range f.incarnations {
				if l.from < to && l.until > from {
					f.checkLate(l, r, Stretch{from, to})
				}
			}
		}
	}
}

// checkLate checks one lease in one healthy stretch of one reign.
func (f *facts) checkLate(l *incarnation, r reign, s Stretch) {
	until := min(l.until, s.To)
	touch := f.touched(l, Stretch{s.From, until})
	_, most := f.span(l.most)
	due := max(touch+most, r.from+most, s.From) + f.l.Lateness + f.cached
	if due < until {
		due = max(due, f.begun(l, r, until)+most+f.l.Lateness+f.cached)
	}
	if due < until {
		f.violate(due, "L2", "%v: not renewed since %v, and still there under member %d, primary "+
			"since %v, at %v", l, touch, r.member, r.from, until)
		return
	}
	f.checkSilent(l, r, Stretch{s.From, until})
	c, at, ok := f.counted(l, r)
	if !ok || touch > l.checkpointed[c].at {
		return
	}
	_, most = f.span(l.checkpointed[c].remaining)
	due = max(at+most, r.from, s.From) + f.l.Lateness + f.cached
	if due < until {
		f.violate(due, "L7", "%v: checkpointed with %d ms at %v, not renewed since %v, and still there "+
			"under member %d, which counted from %v and is primary since %v, at %v",
			l, l.checkpointed[c].remaining, l.checkpointed[c].at, touch, r.member, at, r.from, until)
	}
}

// checkSilent checks that a silent lease is checkpointed, because L7 depends on checkpoints.
func (f *facts) checkSilent(l *incarnation, r reign, s Stretch) {
	if f.l.Silence == 0 {
		return
	}
	_, silence := f.span(min(l.most/2, f.l.Silence))
	if slices.ContainsFunc(f.renewals[l.ID], (*Op).relayed) {
		_, silence = f.span(l.most / 2) // by now the lease has left its group
	}
	touch := f.touched(l, s)
	due := max(touch+silence, r.from+silence, s.From) + f.l.Lateness
	if due >= s.To {
		return
	}
	if least, _ := f.span(l.most); f.cached > 0 && touch+least <= due {
		return // its expiry may already be decided and waiting for a cache
	}
	set, last := false, 0
	for i, c := range l.checkpointed {
		if c.at <= due {
			set, last = c.remaining > 0, i
		}
	}
	if !set {
		f.violate(due, "L7", "%v: not renewed since %v, and not checkpointed under member %d, primary "+
			"since %v, by %v", l, touch, r.member, r.from, due)
		return
	}
	f.checkAgain(l, l.checkpointed[last:], s)
}

// again returns the longest interval between two checkpoints of a silent lease on clocks within the
// bound.
func (f *facts) again(l *incarnation) Time {
	_, again := f.span(min(max(l.most/5*2, 1000), f.l.Silence))
	return again
}

// checkAgain checks that a lease that stays silent is checkpointed again in time, or ends before
// that. Only the checkpointed time survives a restart of all members.
func (f *facts) checkAgain(l *incarnation, list []checkpointed, s Stretch) {
	for i, c := range list {
		due := max(c.at, s.From) + f.again(l) + f.l.Lateness
		least, _ := f.span(c.remaining)
		if due >= s.To || c.at+least <= due+f.l.Lateness {
			return
		}
		if i+1 == len(list) || list[i+1].at > due {
			f.violate(due, "L7", "%v: checkpointed with %d ms at %v, silent since, and not "+
				"checkpointed again by %v", l, c.remaining, c.at, due)
			return
		}
	}
}

// checkRestarts checks L7 for a restart of all members between two healthy stretches. A restart
// prolongs a silent lease by at most the time since its last checkpoint.
func (f *facts) checkRestarts() {
	reigns := f.reigns()
	for i := 1; i < len(f.h.Healthy) && f.l.Silence > 0; i++ {
		before, s := f.h.Healthy[i-1], f.h.Healthy[i]
		began := before.From
		for _, r := range reigns {
			switch {
			case r.from < before.To:
				began = max(began, r.from)
			case r.from < s.To:
				for _, l := range f.incarnations {
					f.checkRestarted(l, began, before, Stretch{r.from, min(r.to, s.To)})
				}
			}
		}
	}
}

// checkRestarted checks one lease in one reign after a restart. began is the start of the last
// reign before the restart.
func (f *facts) checkRestarted(l *incarnation, began Time, before, reign Stretch) {
	until := min(l.until, reign.To)
	touch := f.touched(l, Stretch{before.From, until})
	if l.until <= reign.From || touch > before.To {
		return
	}
	f.seen(seenRestarted)
	_, most := f.span(l.most)
	left := max(0, max(touch, began)+most-before.To)
	due := reign.From + left + f.again(l) + 2*f.l.Lateness + f.cached
	if due < until {
		f.violate(due, "L7", "%v: not renewed since %v, so %v were left when all members stopped "+
			"at %v, and still there under the primary since %v, at %v",
			l, touch, left, before.To, reign.From, until)
	}
}

// counted returns the lease's last checkpoint that the member had applied when its reign began, and
// the start of the countdown. The countdown starts when the member applies the checkpoint, or at
// its promotion if it recovered the checkpoint. A later clock jump before the reign restarts it.
func (f *facts) counted(l *incarnation, r reign) (checkpoint int, at Time, ok bool) {
	applied, started := f.appliedAt(r)
	for c := len(l.checkpointed) - 1; c >= 0; c-- {
		p := l.checkpointed[c]
		t, had := applied(p.entry)
		if !had || t > r.from {
			continue // not applied when the reign began
		}
		if p.remaining == 0 {
			return 0, 0, false
		}
		if t <= started {
			t = r.from
		}
		return c, f.recounted(r, t), true
	}
	return 0, 0, false
}

// recounted returns when a countdown that started at t was last restarted by a clock jump before
// the reign, or t if there was none.
func (f *facts) recounted(r reign, t Time) Time {
	for _, j := range f.h.Jumps {
		if j.Member == r.member && j.At <= r.from {
			t = max(t, j.At)
		}
	}
	return t
}

// appliedAt returns a function that reports when the process that leads in a reign applied an
// entry. Entries in the process's snapshot count as applied when the process started.
func (f *facts) appliedAt(r reign) (applied func(entry int) (Time, bool), started Time) {
	for _, l := range f.h.Restarts {
		if l.Member == r.member && l.Up && l.At <= r.from {
			started = l.At
		}
	}
	var steps []Applied
	for _, a := range f.h.Applied {
		if a.Member == r.member && a.At >= started && a.At <= r.from {
			if a.Snapshot {
				started, steps = a.At, nil
			}
			steps = append(steps, a)
		}
	}
	return func(entry int) (Time, bool) {
		index := uint64(entry + firstIndex)
		for _, a := range steps {
			if a.From >= index {
				return started, true
			}
			if a.To >= index {
				if a.Snapshot {
					return started, true
				}
				return a.At, true
			}
		}
		return 0, false
	}, started
}
