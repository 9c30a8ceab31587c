package sim

import (
	"testing"

	"leasehold.dev/internal/api/waitqueue"
	"leasehold.dev/internal/fsm"
)

// lined is a history of a line of two: lease 1 has its turn from the start, and is revoked at
// 5 s, at revision 4; lease 2 waits, has its turn then, and is revoked at 15 s, at revision 5.
// Client 2 is told all that.
func lined() (*hand, *Turn) {
	b := newHand()
	b.entry(Second, grant(1, 50_000, ""))
	b.entry(Second, grant(2, 50_000, ""))
	b.entry(Second, put("m/1", "", 1))
	b.entry(Second, put("m/2", "", 2))
	b.entry(5*Second, &fsm.Revoke{ID: 1})
	b.entry(15*Second, &fsm.Revoke{ID: 2})
	told := func(at Time, n waitqueue.News) Telling {
		n.Created = 3
		return Telling{at, n}
	}
	t := &Turn{
		Client: 2, Member: 2, Ask: waitqueue.Ask{Key: "m/2", Prefix: "m/", Permits: 1}, Made: 3,
		Token: 7, AsOf: 3, Closed: Never, Told: []Telling{
			told(2*Second, waitqueue.News{State: waitqueue.Waiting, Revision: 3}),
			told(5100*Millisecond, waitqueue.News{State: waitqueue.Ready, Revision: 4, After: "m/1"}),
			told(15100*Millisecond, waitqueue.News{
				State: waitqueue.Gone, Revision: 5, Why: fsm.Revoked, Lease: 2,
			}),
		},
	}
	b.h.Turns = []*Turn{t}
	return b, t
}

// alone makes another turn in the same line, of lease 1.
func (b *hand) alone() *Turn {
	t := &Turn{
		ID: 1, Client: 1, Member: 1, Ask: waitqueue.Ask{Key: "m/1", Prefix: "m/", Permits: 1}, Made: 2,
		Token: 5, AsOf: 2, Closed: 4 * Second, Told: []Telling{{
			2 * Second, waitqueue.News{State: waitqueue.Ready, Revision: 3, Created: 2},
		}},
	}
	b.h.Turns = append(b.h.Turns, t)
	return t
}

// has has a client believe that it has its turn.
func (b *hand) has(t *Turn, from, until Time) {
	x := b.believe(t.Client, beliefTurn, t.Prefix, from, until)
	x.CreateRevision = t.Made
}

// TestCheckTurns (Q1, L4, L5): each thing that may be wrong with what is told of turns, and
// with what is made of it, is found, as itself.
func TestCheckTurns(t *testing.T) {
	for _, c := range []struct {
		want, name string
		change     func(*hand, *Turn)
	}{
		{"", "as it should be", func(b *hand, _ *Turn) { b.alone() }},
		{"", "two, one after the other", func(b *hand, x *Turn) {
			b.has(b.alone(), 2*Second, 4*Second)
			b.has(x, 6*Second, 9*Second)
		}},
		{"", "somebody who leaves before the end", func(_ *hand, x *Turn) {
			x.Told = x.Told[:2]
			x.Closed = 5200 * Millisecond
		}},
		{"Q1", "a turn before it has come", func(_ *hand, x *Turn) { x.Told[1].Revision = 3 }},
		{"Q1", "a turn that has come is not", func(_ *hand, x *Turn) {
			x.Told[0].Revision, x.Told[0].At = 4, 5100*Millisecond
		}},
		{"Q1", "what nobody knows yet", func(_ *hand, x *Turn) { x.Told[1].At = 4 * Second }},
		{"Q1", "what was before it was asked for", func(_ *hand, x *Turn) { x.AsOf = 4 }},
		{"Q1", "a turn is never told", func(_ *hand, x *Turn) { x.Told = x.Told[:1] }},
		{"Q1", "a turn is told late", func(_ *hand, x *Turn) { x.Told[1].At = 9 * Second }},
		{"Q1", "an end is never told", func(_ *hand, x *Turn) { x.Told = x.Told[:2] }},
		{"Q1", "an end that is none", func(_ *hand, x *Turn) { x.Told[2].Revision = 4 }},
		{"Q1", "an end by another lease", func(_ *hand, x *Turn) { x.Told[2].Lease = 1 }},
		{"Q1", "an end for another reason", func(_ *hand, x *Turn) { x.Told[2].Why = fsm.Expired }},
		{"Q1", "an end for no reason", func(_ *hand, x *Turn) {
			x.Told[2].Why, x.Told[2].Lease = 0, 0
		}},
		{"Q1", "an end that nobody knows", func(_ *hand, x *Turn) {
			x.Told[2].Why, x.Told[2].Lease, x.Told[2].Unknown = 0, 0, true
		}},
		{"Q1", "an end that is known and not", func(_ *hand, x *Turn) { x.Told[2].Unknown = true }},
		{"Q1", "after somebody else", func(_ *hand, x *Turn) { x.Told[1].After = "m/3" }},
		{"Q1", "of another key", func(_ *hand, x *Turn) { x.Told[1].Created = 2 }},
		{"Q1", "a turn comes twice", func(_ *hand, x *Turn) {
			x.Told = append(x.Told[:2:2], x.Told[1], x.Told[2])
		}},
		{"L4", "two at one time", func(b *hand, x *Turn) {
			b.has(b.alone(), 2*Second, 7*Second)
			b.has(x, 6*Second, 9*Second)
		}},
		{"L5", "tokens are not in the order of turns", func(b *hand, _ *Turn) { b.alone().Token = 9 }},
	} {
		t.Run(c.want+" "+c.name, func(t *testing.T) {
			b, x := lined()
			c.change(b, x)
			f := newFacts(b.h, handLimits)
			f.replayLog()
			f.checkTurns()
			if got := firstOf(f.report, "Q1", "L4", "L5"); got != c.want {
				t.Errorf("%q, want %q: %v", got, c.want, f.report.Violations)
			}
		})
	}
}
