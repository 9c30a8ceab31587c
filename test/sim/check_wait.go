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

// checkWaits checks Q1: each notice to a waiter is true as of its revision, which lies between the
// request and the notice. A notice contains the ticket's state, or reports that the ticket is ready
// or that its key was deleted and why. Notices arrive in time. It also checks L4 and L5 for
// permits.
func (f *facts) checkWaits() {
	if len(f.h.Waits) == 0 {
		return
	}
	queues := f.replayQueues()
	for _, t := range f.h.Waits {
		f.checkNotices(t, queues[t.Prefix])
		f.checkMissedNotices(t, queues[t.Prefix])
	}
	f.checkHolders()
	f.checkTicketTokens()
}

// queueHistory holds the states of a wait queue, one per change.
type queueHistory []queueState

type queueState struct {
	revision int64
	keys     []modelKey // in order of arrival
}

// replayQueues returns the model's wait queues by prefix.
func (f *facts) replayQueues() map[string]queueHistory {
	queues := make(map[string]queueHistory)
	made := make(map[string]int64) // create revisions of existing keys
	for _, t := range f.h.Waits {
		if queues[t.Prefix] == nil {
			queues[t.Prefix] = queueHistory{{}}
		}
	}
	for i := range f.events {
		ev := &f.events[i]
		prefix := ev.key[:strings.LastIndexByte(ev.key, '/')+1]
		queue := queues[prefix]
		if queue == nil {
			continue
		}
		last := queue[len(queue)-1]
		if last.revision != ev.revision {
			last = queueState{ev.revision, slices.Clone(last.keys)}
			queue = append(queue, last)
		}
		at := slices.IndexFunc(last.keys, func(k modelKey) bool { return k.key == ev.key })
		if at >= 0 {
			last.keys = slices.Delete(last.keys, at, at+1)
		}
		switch {
		case ev.deleted:
			delete(made, ev.key)
		case made[ev.key] == 0:
			made[ev.key] = ev.revision
		}
		if !ev.deleted && ev.lease != 0 {
			last.keys = append(last.keys, modelKey{
				key: ev.key, value: ev.value, lease: ev.lease, create: made[ev.key],
			})
			slices.SortFunc(last.keys, func(a, b modelKey) int {
				return cmp.Or(cmp.Compare(a.create, b.create), cmp.Compare(a.key, b.key))
			})
		}
		queue[len(queue)-1] = last
		queues[prefix] = queue
	}
	return queues
}

// at returns the index of the state at a revision.
func (l queueHistory) at(revision int64) int {
	return sort.Search(len(l), func(i int) bool { return l[i].revision > revision }) - 1
}

// state returns the state of a ticket.
func (q *queueState) state(t *Wait) waitqueue.State {
	before := int64(0)
	for i := range q.keys {
		k := &q.keys[i]
		switch {
		case k.key == t.Key && k.create == t.Made && before < t.Permits:
			return waitqueue.Ready
		case k.key == t.Key && k.create == t.Made:
			return waitqueue.Waiting
		case !t.Skips || k.value != t.IgnoredValue:
			before++
		}
	}
	return waitqueue.Gone
}

func (q *queueState) has(key string) bool {
	return slices.ContainsFunc(q.keys, func(k modelKey) bool { return k.key == key })
}

// checkNotices checks the notices that a client received for a ticket.
func (f *facts) checkNotices(t *Wait, queue queueHistory) {
	last := waitqueue.None
	for i := range t.Notices {
		n := &t.Notices[i]
		now := queue[queue.at(n.Revision)]
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
				t, n.State, n.Revision, is, now.keys)
		case n.Created != t.Made && (n.State != waitqueue.Gone || n.Created != 0):
			f.violate(n.At, "Q1", "%v was told that its key is of revision %d", t, n.Created)
		case n.After != "" && (now.has(n.After) || now.revision != n.Revision ||
			!queue[queue.at(n.Revision-1)].has(n.After)):
			f.violate(n.At, "Q1", "%v was told that it is ready at revision %d because %s left",
				t, n.Revision, n.After)
		case n.State == waitqueue.Gone:
			f.checkWhy(t, n)
		}
		f.lookNotice(n, last)
		last = n.State
	}
}

// lookNotice counts a notice that follows the given state.
func (f *facts) lookNotice(n *Notice, last waitqueue.State) {
	switch {
	case n.State == waitqueue.Ready && last == waitqueue.None:
		f.seen(seenReadyFirst)
	case n.State == waitqueue.Ready && n.After == "":
		f.seen(seenReady)
	case n.State == waitqueue.Ready:
		f.seen(seenReadyAfter)
	case n.State != waitqueue.Gone:
	case n.Why == fsm.Expired:
		f.seen(seenWaitExpired)
	case n.Why == fsm.Revoked:
		f.seen(seenWaitRevoked)
	default:
		f.seen(seenWaitGone)
	}
}

// checkWhy checks the reported reason for the deletion of a key. The reason can be missing if the
// key was detached, or if the revisions that the member would have to read were compacted.
func (f *facts) checkWhy(t *Wait, n *Notice) {
	why, id, revision := f.whyGone(t)
	unnotified := n.Why == fsm.Deleted && n.Lease == 0
	switch {
	case n.Unknown && !unnotified:
		f.violate(n.At, "Q1", "%v was told that its key is gone for reason %d, and that it is not known",
			t, n.Why)
	case unnotified && revision != 0 && revision <= n.Revision && f.detached(t, n.Revision):
	case unnotified && (revision == 0 || revision > n.Revision):
	case n.Unknown && slices.ContainsFunc(f.compacted, func(c compaction) bool {
		return c.at <= n.At && c.revision >= t.AsOf
	}):
	case n.Why != why || n.Lease != id:
		f.violate(n.At, "Q1", "%v was told that its key is gone for reason %d, with lease %d; it was "+
			"%d, with lease %d, at revision %d", t, n.Why, n.Lease, why, id, revision)
	}
}

// whyGone returns why the key of a ticket was deleted, the lease that ended with it, and the
// revision. The revision is 0 if the key still exists.
func (f *facts) whyGone(t *Wait) (why fsm.Reason, id lease.ID, revision int64) {
	for _, v := range f.history[t.Key] {
		if v.deleted && v.mod > t.Made {
			revision = v.mod
			break
		}
	}
	for _, s := range f.leaseEvents {
		if revision == 0 || s.revision != revision || !slices.Contains(s.keys, t.Key) {
			continue
		}
		if s.kind == fsm.LeaseRevoked {
			return fsm.Revoked, s.ID, revision
		}
		return fsm.Expired, s.ID, revision
	}
	return fsm.Deleted, 0, revision
}

// detached reports whether the key of a ticket had no lease at or before a revision.
func (f *facts) detached(t *Wait, revision int64) bool {
	return slices.ContainsFunc(f.history[t.Key], func(v modelVersion) bool {
		return !v.deleted && v.create == t.Made && v.lease == 0 && v.mod <= revision
	})
}

// checkMissedNotices checks that in a healthy stretch a waiter is notified in time of every change
// to its ticket, including the change to ready.
func (f *facts) checkMissedNotices(t *Wait, queue queueHistory) {
	if len(t.Notices) == 0 || f.removed[t.Member] {
		return
	}
	first := &t.Notices[0]
	reached := first.State
	for i := queue.at(first.Revision) + 1; i < len(queue) && reached != waitqueue.Gone; i++ {
		is := queue[i].state(t)
		if is <= reached { // a ready ticket stays ready
			continue
		}
		reached = is
		entry := sort.Search(len(f.revisions), func(k int) bool {
			return f.revisions[k] >= queue[i].revision
		})
		since := max(f.h.Log[entry].At, first.At)
		by, ok := f.dueBy(since, min(t.Closed, f.h.End))
		if !ok {
			return
		}
		if f.seen(seenWaitDue); slices.ContainsFunc(t.Notices, func(n Notice) bool {
			return n.State >= is && n.At <= by
		}) {
			continue
		}
		f.violate(by, "Q1", "%v should have been told state %d, since revision %d and %v",
			t, is, queue[i].revision, since)
		return
	}
}

// dueBy returns the deadline for notifying a waiter of an event. ok is false if a fault lasts too
// long, or if the waiter leaves before the deadline.
func (f *facts) dueBy(since, until Time) (by Time, ok bool) {
	for _, s := range f.h.Healthy {
		by = max(since, s.From+f.l.Recovery) + f.l.Lateness
		if by <= min(s.To, until) {
			return by, true
		}
	}
	return 0, false
}

// held is a client's belief that it holds a permit.
type held struct {
	*Belief
	wait *Wait
}

// permitsHeld returns, for each wait queue, the clients' beliefs that they hold a permit, in order.
func (f *facts) permitsHeld() (prefixes []string, queues map[string][]held) {
	type ticketKey struct {
		prefix string
		made   int64
	}
	waits := make(map[ticketKey]*Wait)
	for _, t := range f.h.Waits {
		waits[ticketKey{t.Prefix, t.Made}] = t
	}
	queues = make(map[string][]held)
	for _, b := range f.h.Beliefs {
		t := waits[ticketKey{b.What, b.CreateRevision}]
		if t == nil || b.Kind != beliefLock && b.Kind != beliefPermit || b.From >= b.Until {
			continue
		}
		if queues[b.What] == nil {
			prefixes = append(prefixes, b.What)
		}
		queues[b.What] = append(queues[b.What], held{b, t})
	}
	return prefixes, queues
}

// checkHolders checks L4 for wait queues: while a client believes that it holds a permit, the
// number of holders before it is less than the number of permits. For queues with one permit, it
// also checks L5: the holders' tokens increase.
func (f *facts) checkHolders() {
	if !f.h.InBound {
		return
	}
	prefixes, queues := f.permitsHeld()
	for _, prefix := range prefixes {
		list := queues[prefix]
		for i, b := range list {
			f.checkShared(b, list)
			if i > 0 && b.Kind == beliefLock && b.wait.Token < list[i-1].wait.Token {
				f.violate(b.From, "L5", "%v holds its permit with token %d, after %v with token %d",
					b.wait, b.wait.Token, list[i-1].wait, list[i-1].wait.Token)
			}
		}
	}
}

// checkShared checks L4 for belief b when it begins and whenever another belief begins.
func (f *facts) checkShared(b held, all []held) {
	for _, instant := range all {
		at := max(b.From, instant.From)
		if at >= b.Until || instant.Until <= at {
			continue
		}
		before := int64(0)
		for _, o := range all {
			skipped := b.wait.Skips && o.wait.Skips // readers do not wait for each other
			if o.From <= at && at < o.Until && o.wait.Made < b.wait.Made && !skipped {
				before++
			}
		}
		if before >= b.wait.Permits {
			f.violate(at, "L4", "%v holds its permit from %v until %v, with %d before it at %v",
				b.wait, b.From, b.Until, before, at)
			return
		}
	}
}

// checkTicketTokens checks L5: tickets have tokens in the order of their keys.
func (f *facts) checkTicketTokens() {
	queues := make(map[string][]*Wait)
	for _, t := range f.h.Waits {
		if t.Token != 0 {
			queues[t.Prefix] = append(queues[t.Prefix], t)
		}
	}
	for _, prefix := range slices.Sorted(maps.Keys(queues)) {
		list := queues[prefix]
		slices.SortStableFunc(list, func(a, b *Wait) int { return cmp.Compare(a.Made, b.Made) })
		for i, t := range list[1:] {
			if was := list[i]; t.Made > was.Made && t.Token <= was.Token {
				f.violate(t.Notices[0].At, "L5", "%v has token %d, and %v before it %d",
					t, t.Token, was, was.Token)
			}
		}
	}
}
