package sim

import (
	"testing"

	"leasehold.dev/internal/api/waitqueue"
	"leasehold.dev/internal/fsm"
)

// twoWaiters returns a history of two waiters. Lease 1 is ready from the start, and is revoked at 5
// s, at revision 4. Lease 2 waits until then, becomes ready, and is revoked at 15 s, at revision 5.
// Client 2 is notified of all these changes.
func twoWaiters() (*hand, *Wait) {
	b := newHand()
	b.entry(Second, grant(1, 50_000, ""))
	b.entry(Second, grant(2, 50_000, ""))
	b.entry(Second, put("m/1", "", 1))
	b.entry(Second, put("m/2", "", 2))
	b.entry(5*Second, &fsm.Revoke{ID: 1})
	b.entry(15*Second, &fsm.Revoke{ID: 2})
	notice := func(at Time, n waitqueue.News) Notice {
		n.Created = 3
		return Notice{at, 0, n}
	}
	t := &Wait{
		Client: 2, Member: 2, Ask: waitqueue.Ask{Key: "m/2", Prefix: "m/", Permits: 1}, Made: 3,
		Token: 7, AsOf: 3, Closed: Never, Notices: []Notice{
			notice(2*Second, waitqueue.News{State: waitqueue.Waiting, Revision: 3}),
			notice(5100*Millisecond, waitqueue.News{State: waitqueue.Ready, Revision: 4, After: "m/1"}),
			notice(15100*Millisecond, waitqueue.News{
				State: waitqueue.Gone, Revision: 5, Why: fsm.Revoked, Lease: 2,
			}),
		},
	}
	b.h.Waits = []*Wait{t}
	return b, t
}

// alone adds another ticket of lease 1 to the same wait queue.
func (b *hand) alone() *Wait {
	t := &Wait{
		ID: 1, Client: 1, Member: 1, Ask: waitqueue.Ask{Key: "m/1", Prefix: "m/", Permits: 1}, Made: 2,
		Token: 5, AsOf: 2, Closed: 4 * Second, Notices: []Notice{{
			2 * Second, 0, waitqueue.News{State: waitqueue.Ready, Revision: 3, Created: 2},
		}},
	}
	b.h.Waits = append(b.h.Waits, t)
	return t
}

// has records a client's belief that it holds its permit.
func (b *hand) has(t *Wait, from, until Time) {
	x := b.believe(t.Client, beliefPermit, t.Prefix, from, until)
	x.CreateRevision = t.Made
}

// TestCheckWaits checks that each kind of wrong notice and each misuse of a permit (Q1, L4, L5) is
// detected and attributed to its invariant.
func TestCheckWaits(t *testing.T) {
	for _, c := range []struct {
		want, name string
		change     func(*hand, *Wait)
	}{
		{"", "correct", func(b *hand, _ *Wait) { b.alone() }},
		{"", "two, one after the other", func(b *hand, x *Wait) {
			b.has(b.alone(), 2*Second, 4*Second)
			b.has(x, 6*Second, 9*Second)
		}},
		{"", "a waiter that leaves before the end", func(_ *hand, x *Wait) {
			x.Notices = x.Notices[:2]
			x.Closed = 5200 * Millisecond
		}},
		{"Q1", "ready too early", func(_ *hand, x *Wait) { x.Notices[1].Revision = 3 }},
		{"Q1", "waiting when ready", func(_ *hand, x *Wait) {
			x.Notices[0].Revision, x.Notices[0].At = 4, 5100*Millisecond
		}},
		{"Q1", "a state that no member has applied", func(_ *hand, x *Wait) { x.Notices[1].At = 4 * Second }},
		{"Q1", "a state from before the question", func(_ *hand, x *Wait) { x.AsOf = 4 }},
		{"Q1", "no notice of ready", func(_ *hand, x *Wait) { x.Notices = x.Notices[:1] }},
		{"Q1", "late notice of ready", func(_ *hand, x *Wait) { x.Notices[1].At = 9 * Second }},
		{"Q1", "no notice of an end", func(_ *hand, x *Wait) { x.Notices = x.Notices[:2] }},
		{"Q1", "a false notice of an end", func(_ *hand, x *Wait) { x.Notices[2].Revision = 4 }},
		{"Q1", "an end by another lease", func(_ *hand, x *Wait) { x.Notices[2].Lease = 1 }},
		{"Q1", "an end for another reason", func(_ *hand, x *Wait) { x.Notices[2].Why = fsm.Expired }},
		{"Q1", "an end for no reason", func(_ *hand, x *Wait) {
			x.Notices[2].Why, x.Notices[2].Lease = 0, 0
		}},
		{"Q1", "an end that no member has applied", func(_ *hand, x *Wait) {
			x.Notices[2].Why, x.Notices[2].Lease, x.Notices[2].Unknown = 0, 0, true
		}},
		{"Q1", "an end that is reported as unknown", func(_ *hand, x *Wait) { x.Notices[2].Unknown = true }},
		{"Q1", "after another waiter", func(_ *hand, x *Wait) { x.Notices[1].After = "m/3" }},
		{"Q1", "of another key", func(_ *hand, x *Wait) { x.Notices[1].Created = 2 }},
		{"Q1", "ready twice", func(_ *hand, x *Wait) {
			x.Notices = append(x.Notices[:2:2], x.Notices[1], x.Notices[2])
		}},
		{"L4", "two at one time", func(b *hand, x *Wait) {
			b.has(b.alone(), 2*Second, 7*Second)
			b.has(x, 6*Second, 9*Second)
		}},
		{"L5", "tokens are not in the order of keys", func(b *hand, _ *Wait) { b.alone().Token = 9 }},
	} {
		t.Run(c.want+" "+c.name, func(t *testing.T) {
			b, x := twoWaiters()
			c.change(b, x)
			f := newFacts(b.h, handLimits)
			f.replayLog()
			f.checkWaits()
			if got := firstOf(f.report, "Q1", "L4", "L5"); got != c.want {
				t.Errorf("%q, want %q: %v", got, c.want, f.report.Violations)
			}
		})
	}
}
