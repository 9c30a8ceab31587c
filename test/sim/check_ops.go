package sim

import (
	"errors"
	"slices"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
)

// matchOps assigns the commands sent by clients to log entries. A command that certainly failed has
// no entry (S1), an acknowledged command has one (S2), and a command with an unknown outcome has at
// most one. The log contains nothing that was not requested.
func (f *facts) matchOps() {
	type class struct {
		ops    []*Op
		places []logPosition
	}
	classes := make(map[string]*class)
	of := func(who access.Caller, c fsm.Command) *class {
		key := string(fsm.AppendCommand(nil, fsm.OnBehalf(who, c)))
		if classes[key] == nil {
			classes[key] = &class{}
		}
		return classes[key]
	}
	for i, e := range f.h.Log {
		for k, c := range e.Commands {
			if !fsm.Internal(c) && !operators(c) {
				x := of(e.callerOf(k), c)
				x.places = append(x.places, logPosition{i, k})
			}
		}
	}
	var order []*class
	for _, op := range f.h.Ops {
		if op.Kind != opCommand || operators(op.Command) {
			continue
		}
		c := of(op.Caller, op.Command)
		if len(c.ops) == 0 {
			order = append(order, c)
		}
		c.ops = append(c.ops, op)
	}
	for _, c := range order {
		f.match(c.ops, c.places)
	}
	for _, c := range classes {
		if len(c.ops) > 0 {
			continue
		}
		for _, p := range c.places {
			e := f.h.Log[p.entry]
			f.violate(e.At, "S1", "entry %d carries %s, which no client sent",
				e.Index, show(e.Commands[p.command]))
		}
	}
}

// operators reports whether a command is issued by operators, members or leaders rather than by
// clients.
func operators(c fsm.Command) bool {
	switch c.(type) {
	case *fsm.SetMember, *fsm.SetAlarm, *fsm.SetVersion, *fsm.Compact, *fsm.StateHash:
		return true
	default:
		return fsm.Membership(c)
	}
}

// match assigns equal commands in the log to the operations that may have sent them. If several
// acknowledged operations fit a position, it picks the one that was answered first, so that as many
// operations as possible are matched.
func (f *facts) match(ops []*Op, places []logPosition) {
	var left []logPosition
	for _, p := range places {
		if op := f.first(ops, p, Done); op != nil {
			f.entryOf[op.ID] = p
		} else {
			left = append(left, p)
		}
	}
	for _, op := range ops {
		if _, ok := f.entryOf[op.ID]; !ok && op.Outcome == Done {
			f.violate(op.End, "S2", "client %d was told at %v that %s (operation %d, revision %d) is "+
				"done, and the log does not have it", op.Client, op.End, show(op.Command), op.ID,
				op.Fsm.Revision)
		}
	}
	for _, p := range left {
		if op := f.first(ops, p, Unknown); op != nil {
			f.entryOf[op.ID] = p
			continue
		}
		e := f.h.Log[p.entry]
		f.violate(e.At, "S1", "entry %d carries %s, which was sent %d times at most and stands %d "+
			"times in the log, or had been answered as failed (operation %d of client %d)",
			e.Index, show(e.Commands[p.command]), len(ops), len(places), ops[0].ID, ops[0].Client)
	}
}

// first considers the operations that have the given outcome, have no position yet and fit p. It
// returns the one that ended first.
func (f *facts) first(ops []*Op, p logPosition, outcome Ending) *Op {
	var best *Op
	for _, op := range ops {
		if _, ok := f.entryOf[op.ID]; ok || op.Outcome != outcome || !f.fits(op, p) {
			continue
		}
		if best == nil || op.End < best.End {
			best = op
		}
	}
	return best
}

// fits reports whether the command at a position may be the operation's command: the position lies
// between the operation's start and its answer, and the result equals the answer.
func (f *facts) fits(op *Op, p logPosition) bool {
	e := f.h.Log[p.entry]
	if e.At < op.Start {
		return false
	}
	if op.Outcome != Done {
		return true
	}
	return e.At <= op.End && differs(&op.Fsm, &f.outcomes[p.entry][p.command]) == ""
}

// checkOps checks S1: every linearizable operation takes effect in the order of the log, between
// its start and its answer. It observes everything that some member had applied when it started,
// and only what some member had applied when it was answered.
func (f *facts) checkOps() {
	for _, op := range f.h.Ops {
		if op.Outcome != Done {
			continue
		}
		from, to := f.seenAt(op.Start-1), f.seenAt(op.End)
		if op.Answered > 0 {
			to = f.seenAt(op.Answered)
		}
		switch op.Kind {
		case opCommand:
			if p, ok := f.entryOf[op.ID]; ok && p.entry < from {
				f.violate(op.End, "S1", "operation %d of client %d (%s) took effect in entry %d, before "+
					"it was sent", op.ID, op.Client, show(op.Command), f.h.Log[p.entry].Index)
			}
		case opRange:
			f.checkRange(op, from, to)
		case opRenew:
			f.checkRenew(op, from, to)
		case opTTL:
			f.checkTTL(op, from, to)
		case opEvents:
			f.checkEvents(op, to)
		case opCached:
			f.checkCached(op, from, to)
		}
	}
}

// checkRange checks that a read returns one whole revision. That revision was the newest at some
// time during the read or, if the read is serializable, at any earlier time.
func (f *facts) checkRange(op *Op, from, to int) {
	if op.Err != nil {
		f.checkRangeError(op, to)
		return
	}
	got, c := op.Answer.Range, op.Request.Range
	least, most := f.revisionOf(from), f.revisionOf(to)
	if op.Serializable {
		least = 1
	}
	if got.Revision < least || got.Revision > most {
		f.violate(op.End, "S1", "operation %d of client %d read [%s,%s) at member %d at revision %d, "+
			"not within %d and %d", op.ID, op.Client, c.Key, c.End, op.Member, got.Revision, least, most)
		return
	}
	revision := got.Revision
	if c.Options.Revision > 0 {
		revision = c.Options.Revision
	}
	want := wanted(f.scanAt(c.Key, c.End, revision), &c.Options)
	if c.Options.CountOnly || c.Options.SortBy != mvcc.None {
		return
	}
	if why := differsRange(got.KVs, want); why != "" {
		f.violate(op.End, "S1", "operation %d of client %d read [%s,%s) at revision %d: %s",
			op.ID, op.Client, c.Key, c.End, revision, why)
	}
}

// checkRangeError checks that a read fails only if its revision was compacted or is in the future.
func (f *facts) checkRangeError(op *Op, to int) {
	revision := op.Request.Range.Options.Revision
	ok := true
	switch {
	case errors.Is(op.Err, mvcc.ErrCompacted):
		ok = slices.ContainsFunc(f.compacted, func(c compaction) bool {
			return c.revision > revision && c.at <= op.End
		})
	case errors.Is(op.Err, mvcc.ErrFutureRevision):
		ok = op.Serializable || revision > f.revisionOf(f.seenAt(op.Start-1)) || to == 0
	}
	if !ok || revision == 0 {
		f.violate(op.End, "S1", "operation %d of client %d read at revision %d: %v",
			op.ID, op.Client, revision, op.Err)
	}
}

// wanted applies the filters and the limit of a read.
func wanted(keys []modelKey, o *mvcc.RangeOptions) []modelKey {
	in := func(at, least, most int64) bool { return at >= least && (most == 0 || at <= most) }
	keys = slices.DeleteFunc(slices.Clone(keys), func(k modelKey) bool {
		return !in(k.mod, o.MinModRevision, o.MaxModRevision) ||
			!in(k.create, o.MinCreateRevision, o.MaxCreateRevision)
	})
	if o.Limit > 0 && int64(len(keys)) > o.Limit {
		keys = keys[:o.Limit]
	}
	return keys
}

// scanAt returns the pairs in [from, end) at a revision.
func (f *facts) scanAt(from, end string, revision int64) []modelKey {
	keys := []string{from}
	if end != "" {
		keys = f.keys
	}
	var out []modelKey
	for _, key := range keys {
		if !between(key, from, end) {
			continue
		}
		if k, ok := f.at(key, revision); ok {
			out = append(out, k)
		}
	}
	return out
}

// alive considers the states after the first n entries, for all n in [from, to]. It reports whether
// the lease existed in one of them, and whether it was missing in one of them. If token is not 0,
// only a lease with that token counts.
func (f *facts) alive(id lease.ID, token lease.Token, from, to int) (was, wasNot bool) {
	covered := from
	for _, l := range f.byID[id] {
		if l.delayed || token != 0 && l.token != token {
			continue
		}
		// The lease exists after the first n entries for every n in (granted, ended].
		lo, hi := max(l.granted+1, from), min(l.ended, to)
		if lo > hi {
			continue
		}
		was = true
		if lo > covered {
			wasNot = true
		}
		covered = hi + 1
	}
	return was, wasNot || covered <= to
}

// checkRenew checks L3: once a lease has ended on any member, no renewal that starts later
// succeeds. A lease that existed throughout is never reported as not found (T7). A token is valid
// only for the lease with that token (T28). The returned TTL is one that the lease had during the
// operation.
func (f *facts) checkRenew(op *Op, from, to int) {
	was, wasNot := f.alive(op.Lease, op.Request.Token, from, to)
	switch {
	case op.Err == nil && !was:
		f.violate(op.End, "L3", "operation %d of client %d: the renewal of lease %d (token %d) that "+
			"began at %v succeeded at member %d, and the lease was not there any more%s", op.ID,
			op.Client, op.Lease, op.Request.Token, op.Start, op.Member, f.past(op.Lease))
	case errors.Is(op.Err, lease.ErrNotFound) && !wasNot:
		f.violate(op.End, "S1", "operation %d of client %d: lease %d (token %d) was not found at "+
			"member %d by a renewal that began at %v, and was there all the time%s", op.ID, op.Client,
			op.Lease, op.Request.Token, op.Member, op.Start, f.past(op.Lease))
	case op.Err == nil && !f.had(op, from, to):
		f.violate(op.End, "L1", "operation %d of client %d: the renewal of lease %d that began at %v "+
			"promised %d ms at member %d, a TTL that it did not have then%s", op.ID, op.Client,
			op.Lease, op.Start, op.TTL, op.Member, f.past(op.Lease))
	}
}

// had reports whether a lease had the promised TTL after the first n entries, for some n in [from,
// to]. The states within an entry count too, because the commands of an entry are answered member
// by member.
func (f *facts) had(op *Op, from, to int) bool {
	for _, l := range f.byID[op.Lease] {
		for i, t := range l.terms {
			end := min(l.ended, to)
			if i+1 < len(l.terms) {
				end = min(end, l.terms[i+1].entry)
			}
			within := i+1 < len(l.terms) && l.terms[i+1].entry == t.entry &&
				from <= t.entry && t.entry < to
			if t.ttl == op.TTL && (within || max(t.entry+1, from) <= end) {
				return true
			}
		}
	}
	return false
}

func (f *facts) checkTTL(op *Op, from, to int) {
	was, wasNot := f.alive(op.Lease, 0, from, to)
	if op.Found && !was || !op.Found && !wasNot {
		f.violate(op.End, "S1", "operation %d of client %d asked member %d from %v for lease %d: "+
			"found %t%s", op.ID, op.Client, op.Member, op.Start, op.Lease, op.Found, f.past(op.Lease))
		return
	}
	l := f.incarnationAt(op.Lease, to-1)
	if op.Found && l != nil && op.TTL > l.most+lease.TTL(f.l.Linger/Millisecond) {
		f.violate(op.End, "L2", "operation %d of client %d: lease %d has %d ms left of %d",
			op.ID, op.Client, op.Lease, op.TTL, l.TTL)
	}
}

// past describes the incarnations of a lease for a violation report.
func (f *facts) past(id lease.ID) string {
	out := ""
	for _, l := range f.byID[id] {
		out += "; " + l.String()
	}
	return out
}
