package sim

import (
	"cmp"
	"maps"
	"slices"
	"sort"
	"strings"

	"leasehold.dev/internal/api/waitqueue"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// checkTurns is Q1: who waits in a line is told what was so as of a revision that he is told,
// after he asked and before he is told: where his place stands, that it is his turn, that his
// key is gone, and why; and he is told in time. And it is L4 and L5 for what is held by turn.
func (f *facts) checkTurns() {
	if len(f.h.Turns) == 0 {
		return
	}
	lines := f.replayLines()
	for _, t := range f.h.Turns {
		f.checkTold(t, lines[t.Prefix])
		f.checkUntold(t, lines[t.Prefix])
	}
	f.checkHolders()
	f.checkPlaceTokens()
}

// modelLine is a line from each revision that changes it to the next.
type modelLine []modelQueue

type modelQueue struct {
	revision int64
	places   []modelKey // first come first
}

// replayLines makes the lines of the model, by their prefixes.
func (f *facts) replayLines() map[string]modelLine {
	lines := make(map[string]modelLine)
	made := make(map[string]int64) // create revisions of the keys that are there
	for _, t := range f.h.Turns {
		if lines[t.Prefix] == nil {
			lines[t.Prefix] = modelLine{{}}
		}
	}
	for i := range f.events {
		ev := &f.events[i]
		prefix := ev.key[:strings.LastIndexByte(ev.key, '/')+1]
		line := lines[prefix]
		if line == nil {
			continue
		}
		last := line[len(line)-1]
		if last.revision != ev.revision {
			last = modelQueue{ev.revision, slices.Clone(last.places)}
			line = append(line, last)
		}
		at := slices.IndexFunc(last.places, func(k modelKey) bool { return k.key == ev.key })
		if at >= 0 {
			last.places = slices.Delete(last.places, at, at+1)
		}
		switch {
		case ev.deleted:
			delete(made, ev.key)
		case made[ev.key] == 0:
			made[ev.key] = ev.revision
		}
		if !ev.deleted && ev.lease != 0 {
			last.places = append(last.places, modelKey{
				key: ev.key, value: ev.value, lease: ev.lease, create: made[ev.key],
			})
			slices.SortFunc(last.places, func(a, b modelKey) int {
				return cmp.Or(cmp.Compare(a.create, b.create), cmp.Compare(a.key, b.key))
			})
		}
		line[len(line)-1] = last
		lines[prefix] = line
	}
	return lines
}

// at returns the place in the line of the state that the line has at a revision.
func (l modelLine) at(revision int64) int {
	return sort.Search(len(l), func(i int) bool { return l[i].revision > revision }) - 1
}

// state is where a place stands.
func (q *modelQueue) state(t *Turn) waitqueue.State {
	before := int64(0)
	for i := range q.places {
		k := &q.places[i]
		switch {
		case k.key == t.Key && k.create == t.Made && before < t.Permits:
			return waitqueue.Ready
		case k.key == t.Key && k.create == t.Made:
			return waitqueue.Waiting
		case !t.Skips || k.value != t.Beside:
			before++
		}
	}
	return waitqueue.Gone
}

func (q *modelQueue) has(key string) bool {
	return slices.ContainsFunc(q.places, func(k modelKey) bool { return k.key == key })
}

// checkTold checks what a client was told of a place.
func (f *facts) checkTold(t *Turn, line modelLine) {
	last := waitqueue.None
	for i := range t.Told {
		n := &t.Told[i]
		now := line[line.at(n.Revision)]
		is := now.state(t)
		switch {
		case n.Revision > f.revisionOf(f.seenAt(n.At)):
			f.violate(n.At, "Q1", "%v was told state %d as of revision %d, which nobody has applied",
				t, n.State, n.Revision)
		case n.Revision < t.AsOf || n.State <= last:
			f.violate(n.At, "Q1", "%v, as of revision %d, was told state %d as of revision %d after "+
				"state %d", t, t.AsOf, n.State, n.Revision, last)
		case n.State != is:
			f.violate(n.At, "Q1", "%v was told state %d as of revision %d, when it was %d: %v",
				t, n.State, n.Revision, is, now.places)
		case n.Created != t.Made && (n.State != waitqueue.Gone || n.Created != 0):
			f.violate(n.At, "Q1", "%v was told that its key is of revision %d", t, n.Created)
		case n.After != "" && (now.has(n.After) || now.revision != n.Revision ||
			!line[line.at(n.Revision-1)].has(n.After)):
			f.violate(n.At, "Q1", "%v was told that its turn came at revision %d as %s went",
				t, n.Revision, n.After)
		case n.State == waitqueue.Gone:
			f.checkWhy(t, n)
		}
		f.lookTurn(n, last)
		last = n.State
	}
}

// lookTurn counts what a client is told after a state.
func (f *facts) lookTurn(n *Telling, last waitqueue.State) {
	switch {
	case n.State == waitqueue.Ready && last == waitqueue.None:
		f.seen(seenTurnFirst)
	case n.State == waitqueue.Ready && n.After == "":
		f.seen(seenTurnCome)
	case n.State == waitqueue.Ready:
		f.seen(seenTurnAfter)
	case n.State != waitqueue.Gone:
	case n.Why == fsm.Expired:
		f.seen(seenTurnExpired)
	case n.Why == fsm.Revoked:
		f.seen(seenTurnRevoked)
	default:
		f.seen(seenTurnGone)
	}
}

// checkWhy checks what a client was told of the end of his key. That may be nothing, if the
// key was let go, or if what the member would have had to look at was compacted.
func (f *facts) checkWhy(t *Turn, n *Telling) {
	why, id, revision := f.whyGone(t)
	untold := n.Why == fsm.Deleted && n.Lease == 0
	switch {
	case n.Unknown && !untold:
		f.violate(n.At, "Q1", "%v was told that its key is gone for reason %d, and that it is not known",
			t, n.Why)
	case untold && revision != 0 && revision <= n.Revision && f.letGo(t, n.Revision):
	case untold && (revision == 0 || revision > n.Revision): // it was let go, and may be there yet
	case n.Unknown && slices.ContainsFunc(f.compacted, func(c compaction) bool {
		return c.at <= n.At && c.revision >= t.AsOf
	}):
	case n.Why != why || n.Lease != id:
		f.violate(n.At, "Q1", "%v was told that its key is gone for reason %d, with lease %d; it was "+
			"%d, with lease %d, at revision %d", t, n.Why, n.Lease, why, id, revision)
	}
}

// whyGone returns why the key of a place was deleted, the lease that took it, and the
// revision, 0 if it is there yet.
func (f *facts) whyGone(t *Turn) (why fsm.Reason, id lease.ID, revision int64) {
	for _, v := range f.history[t.Key] {
		if v.deleted && v.mod > t.Made {
			revision = v.mod
			break
		}
	}
	for _, s := range f.fates {
		if revision == 0 || s.revision != revision || !slices.Contains(s.keys, t.Key) {
			continue
		}
		if s.kind == fsm.LeaseRevoked {
			return fsm.Revoked, s.id, revision
		}
		return fsm.Expired, s.id, revision
	}
	return fsm.Deleted, 0, revision
}

// letGo reports whether the key of a place was on no lease any more at a revision, or before.
func (f *facts) letGo(t *Turn, revision int64) bool {
	return slices.ContainsFunc(f.history[t.Key], func(v modelVersion) bool {
		return !v.deleted && v.create == t.Made && v.lease == 0 && v.mod <= revision
	})
}

// checkUntold checks that a client who waits is told in time, once nothing is wrong, of what
// becomes of his place: there is nobody whose turn has come and who does not learn of it.
func (f *facts) checkUntold(t *Turn, line modelLine) {
	if len(t.Told) == 0 || f.removed[t.Member] {
		return
	}
	first := &t.Told[0]
	reached := first.State
	for i := line.at(first.Revision) + 1; i < len(line) && reached != waitqueue.Gone; i++ {
		is := line[i].state(t)
		if is <= reached { // a turn that has come stays
			continue
		}
		reached = is
		entry := sort.Search(len(f.revisions), func(k int) bool {
			return f.revisions[k] >= line[i].revision
		})
		since := max(f.h.Log[entry].At, first.At)
		by, ok := f.dueBy(since, min(t.Closed, f.h.End))
		if !ok {
			return
		}
		if f.seen(seenTurnDue); slices.ContainsFunc(t.Told, func(n Telling) bool {
			return n.State >= is && n.At <= by
		}) {
			continue
		}
		f.violate(by, "Q1", "%v should have been told state %d, since revision %d and %v",
			t, is, line[i].revision, since)
		return
	}
}

// dueBy is by when somebody is to be told of what happened at an instant: ok is false if
// something is wrong for too long, or he does not wait for so long.
func (f *facts) dueBy(since, until Time) (by Time, ok bool) {
	for _, s := range f.h.Healthy {
		by = max(since, s.From+f.l.Recovery) + f.l.Lateness
		if by <= min(s.To, until) {
			return by, true
		}
	}
	return 0, false
}

// held is what somebody believes to hold by a turn.
type held struct {
	*Belief
	turn *Turn
}

// turnsHeld are the beliefs of each line, in order.
func (f *facts) turnsHeld() (prefixes []string, lines map[string][]held) {
	type place struct {
		prefix string
		made   int64
	}
	turns := make(map[place]*Turn)
	for _, t := range f.h.Turns {
		turns[place{t.Prefix, t.Made}] = t
	}
	lines = make(map[string][]held)
	for _, b := range f.h.Beliefs {
		t := turns[place{b.What, b.CreateRevision}]
		if t == nil || b.Kind != beliefLock && b.Kind != beliefTurn || b.From >= b.Until {
			continue
		}
		if lines[b.What] == nil {
			prefixes = append(prefixes, b.What)
		}
		lines[b.What] = append(lines[b.What], held{b, t})
	}
	return prefixes, lines
}

// checkHolders is L4 for lines: whoever is sure to have his turn shares it at any time with
// fewer who came before him, and whom he waits for, than there are permits. And of a turn
// that is one's alone it is L5: their tokens are in order.
func (f *facts) checkHolders() {
	if !f.h.InBound {
		return
	}
	prefixes, lines := f.turnsHeld()
	for _, prefix := range prefixes {
		list := lines[prefix]
		for i, b := range list {
			f.checkShared(b, list)
			if i > 0 && b.Kind == beliefLock && b.turn.Token < list[i-1].turn.Token {
				f.violate(b.From, "L5", "%v has its turn with token %d, after %v with token %d",
					b.turn, b.turn.Token, list[i-1].turn, list[i-1].turn.Token)
			}
		}
	}
}

// checkShared looks at every instant at which others begin, too.
func (f *facts) checkShared(b held, all []held) {
	for _, instant := range all {
		at := max(b.From, instant.From)
		if at >= b.Until || instant.Until <= at {
			continue
		}
		before := int64(0)
		for _, o := range all {
			skipped := b.turn.Skips && o.turn.Skips // readers skip readers
			if o.From <= at && at < o.Until && o.turn.Made < b.turn.Made && !skipped {
				before++
			}
		}
		if before >= b.turn.Permits {
			f.violate(at, "L4", "%v has its turn from %v until %v, with %d before it at %v",
				b.turn, b.From, b.Until, before, at)
			return
		}
	}
}

// checkPlaceTokens is L5: the tokens of places are in the order of their turns.
func (f *facts) checkPlaceTokens() {
	lines := make(map[string][]*Turn)
	for _, t := range f.h.Turns {
		if t.Token != 0 {
			lines[t.Prefix] = append(lines[t.Prefix], t)
		}
	}
	for _, prefix := range slices.Sorted(maps.Keys(lines)) {
		list := lines[prefix]
		slices.SortStableFunc(list, func(a, b *Turn) int { return cmp.Compare(a.Made, b.Made) })
		for i, t := range list[1:] {
			if was := list[i]; t.Made > was.Made && t.Token <= was.Token {
				f.violate(t.Told[0].At, "L5", "%v has token %d, and %v before it %d",
					t, t.Token, was, was.Token)
			}
		}
	}
}
