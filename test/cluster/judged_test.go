package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// The judges of TestRecipes are tested with what agents would have seen if something were wrong.

// holds is what the notes of an agent that has a thing from an instant until another are.
func holds(who, what, mode string, token uint64, from, till time.Duration) []note {
	span := int64(token)
	return []note{
		{
			Who: who, Verb: noteHold, At: from, Span: span, What: what, Mode: mode, Token: token,
			Mark: span,
		},
		{Who: who, Verb: noteStill, Span: span, Till: till},
	}
}

// gives adds that it is given up at an instant, in some way.
func gives(list []note, at time.Duration, how string) []note {
	return append(list, note{
		Who: list[0].Who, Verb: noteEnd, At: at, Span: list[0].Span, Mode: how,
	})
}

// judging tests a judge: it must say what it is to say, or nothing if that is empty.
type judging struct {
	name, want string
	err        error
}

func judged(t *testing.T, list []judging) {
	t.Helper()
	for _, x := range list {
		got := errText(x.err)
		if (x.want == "") != (got == "") || !strings.Contains(got, x.want) {
			t.Errorf("%s: %q, want %q", x.name, got, x.want)
		}
	}
}

// TestStaysNotice: what is held by more than may, or by those with smaller tokens, is noticed.
func TestStaysNotice(t *testing.T) {
	// The first one knows that it is over at 10, and so does the second of 20.
	right := slices.Concat(
		holds("a", "x", modeAlone, 1, 2, 10), gives(holds("b", "x", modeAlone, 2, 11, 40), 20, endGiven),
		holds("c", "x", modeAlone, 3, 21, 30),
		holds("d", "x", modeAlone, 2, 5, 5), // has never seen it to be valid
	)
	of := func(more ...note) []*stay {
		list := stays(slices.Concat(right, more))
		return byFrom(list, func(*stay) bool { return true })
	}
	// An agent that ignores that its context has ended has it for longer than its lease.
	ignores := note{Who: "a", Verb: noteStill, Span: 1, Till: 12}
	late := note{Who: "b", Verb: noteStill, Span: 2, Till: 50} // after its end: of no account
	reader, writer := holds("e", "x", modeShared, 4, 25, 35), holds("f", "x", modeAlone, 5, 28, 29)
	closed := gives(holds("g", "x", modeAlone, 6, 31, 39), 39, endClosed)
	sight := func(mark int64, from, at time.Duration) []note {
		return []note{{Who: "l", Verb: noteSight, What: "x", Mark: mark, From: from, At: at}}
	}
	judged(t, []judging{
		{"one after the other", "", crowded(of(), 1)},
		{"a note that comes late", "", crowded(of(late), 1)},
		{"one who ignores its context", "2 have what 1 may: [a has x", crowded(of(ignores), 1)},
		{"two of two", "", crowded(of(ignores), 2)},
		{"three of two", "3 have what 2 may", crowded(of(slices.Concat(reader, writer)...), 2)},
		{"tokens that rise", "", unfenced(of())},
		{
			"a token as before", "tokens do not rise: c has x",
			unfenced(of(holds("d", "x", modeAlone, 2, 32, 40)...)),
		},
		{"writers alone", "", beside(of(), modeAlone)},
		{
			"a reader beside a writer", "a writer is not alone: c has x",
			beside(of(reader...), modeAlone),
		},
		{
			"readers together", "",
			beside(of(slices.Concat(holds("r", "x", modeShared, 7, 31, 35),
				holds("s", "x", modeShared, 8, 31, 35))...), modeAlone),
		},
		{"a quarantine", "", hasty(of(), 1)},
		{"no quarantine", "no quarantine between a has x", hasty(of(), 2)},
		{
			"no quarantine after a lease that nobody renews", "no quarantine between g has x",
			hasty(of(slices.Concat(closed, holds("h", "x", modeAlone, 9, 42, 50))...), 5),
		},
		{"who looks", "", unseen(sight(1, 2, 10), of())},
		{"who looks later", "", unseen(sight(0, 3, 11), of())},
		{"who looks and sees nobody", "saw 0 have x", unseen(sight(0, 3, 9), of())},
		{"who looks and sees another", "saw 3 have x", unseen(sight(3, 12, 19), of())},
	})
}

// TestSunkNotices: a write by a smaller token is noticed.
func TestSunkNotices(t *testing.T) {
	write := func(token string) event { return event{key: fencedPrefix + "x", value: token} }
	judged(t, []judging{
		{"rising", "", sunk(journal{1: {write("9")}, 2: {write("9")}, 3: {write("10")}})},
		{
			"falling", `revision 2: fenced/x has "9" after 10`,
			sunk(journal{1: {write("10")}, 2: {write("9")}}),
		},
		{"no token", `has ""`, sunk(journal{1: {write("")}})},
	})
}

// election is a journal of one: a leads, b waits, a proclaims and goes.
func election() journal {
	a, b := usedPrefix+theElection+"/a", usedPrefix+theElection+"/b"
	return journal{
		2: {{key: a, value: "a"}}, 3: {{key: "other"}}, 4: {{key: b, value: "b"}},
		5: {{key: a, value: "A"}}, 6: {{key: b, value: "B"}}, 7: {{key: a, gone: true}},
		9: {{key: b, gone: true}},
	}
}

// TestOverlookedNotices: an observer that leaves somebody out, or tells somebody who was
// not the leader, is noticed.
func TestOverlookedNotices(t *testing.T) {
	all := []note{
		{Revision: 3, Mark: 2, Text: "a"},
		{Revision: 5, Mark: 2, Text: "A"},
		{Revision: 7, Mark: 4, Text: "B"},
		{Revision: 9},
	}
	by := func(list ...note) error {
		list = slices.Clone(list)
		for i := range list {
			list[i].Verb, list[i].What = noteLeader, "o"
		}
		return overlooked(list, election())
	}
	judged(t, []judging{
		{"all", "", by(all...)},
		{
			"from before", "",
			by(append([]note{{Revision: 1}, {Revision: 2, Mark: 2, Text: "a"}}, all[1:]...)...),
		},
		{"until it was killed", "", by(all[:2]...)},
		{"one left out", "observer o, 1: {revision:7", by(all[0], all[2])},
		{"one told twice", "observer o, 2: {revision:5", by(all[0], all[1], all[1])},
		{
			"old at first", "observer o, 0: {revision:8 since:2",
			by(note{Revision: 8, Mark: 2, Text: "A"}),
		},
		{"who waits", "since:4", by(all[0], note{Revision: 4, Mark: 4, Text: "b"})},
		{"after the end", "after the end", by(append(all, all[0])...)},
	})
}

// group is a journal of one: 0 joins, 1 joins, 0 is updated, goes and comes back.
func group() journal {
	key := func(id string) string { return usedPrefix + theGroup + "/" + id }
	return journal{
		2: {{key: key("0"), value: "a", lease: 10}}, 3: {{key: key("1"), value: "b", lease: 11}},
		4: {{key: key("0"), value: "A", lease: 10}}, 6: {{key: key("0"), gone: true}},
		7: {{key: key("0"), value: "c", lease: 12}},
	}
}

// TestMisledNotices: a watch of the group that leaves something out is noticed, at its
// beginning and later.
func TestMisledNotices(t *testing.T) {
	all := []note{
		{Revision: 4, Mode: "joined", Mark: 10, Text: "0=A"},
		{Revision: 3, Mode: "joined", Mark: 11, Text: "1=b"},
		{Revision: 6, Mode: "failed", Mark: 10, Text: "0=A"},
		{Revision: 7, Mode: "joined", Mark: 12, Text: "0=c"},
	}
	by := func(list ...note) error {
		list = slices.Clone(list)
		for i := range list {
			list[i].Verb, list[i].What = noteMember, "w"
		}
		return misled(list, group())
	}
	left := all[2]
	left.Mode = "left"
	gone := all[2]
	gone.Mode = "gone"
	judged(t, []judging{
		{"all", "", by(all...)},
		{"from before", "", by(
			note{Revision: 2, Mode: "joined", Mark: 10, Text: "0=a"}, all[1],
			note{Revision: 4, Mode: "updated", Mark: 10, Text: "0=A"}, all[2], all[3],
		)},
		{"until it was killed", "", by(all[:3]...)},
		{"one missing at first", "2 were there before", by(all[0], all[2], all[3])},
		{"one missing later", "there before", by(all[0], all[1], all[3])},
		{"told twice", "change", by(all[0], all[1], all[2], all[2])},
		{"old metadata", "was there, told", by(
			note{Revision: 2, Mode: "joined", Mark: 10, Text: "0=a"}, all[1], all[2],
		)},
		{"left, and did not", "and it did not", by(all[0], all[1], left)},
		{"no reason", "gone for an unknown reason", by(all[0], all[1], gone)},
	})
}

// queued is a journal of a queue: what agents did with the item i and payload p.
type queued struct {
	j        journal
	revision int64
}

func (q *queued) did(events ...event) *queued {
	if q.j == nil {
		q.j = journal{}
	}
	q.revision++
	q.j[q.revision] = events
	return q
}

func inQueue(kind string) string { return usedPrefix + theQueue + "/" + kind + "/i" }

func (q *queued) push() *queued { return q.did(event{key: inQueue("item"), value: "p"}) }

func (q *queued) claim(lease int64) *queued {
	return q.did(event{key: inQueue("claim"), value: "w", lease: lease}, event{key: inQueue("try")})
}

func (q *queued) lose() *queued { return q.did(event{key: inQueue("claim"), gone: true}) }

func (q *queued) delay(lease int64) *queued {
	return q.did(event{key: inQueue("claim"), lease: lease})
}

// ack is that of the claim of a lease, whichever agent has it.
func (q *queued) ack(lease int64) *queued {
	return q.did(event{key: inQueue("claim"), gone: true}, event{key: inQueue("item"), gone: true},
		event{key: inQueue("try"), gone: true},
		event{key: donePrefix + "p", value: fmt.Sprintf("%x", lease)})
}

func (q *queued) bury() *queued {
	return q.did(event{key: inQueue("item"), gone: true}, event{key: inQueue("try"), gone: true},
		event{key: inQueue("dead"), value: "p"})
}

// tried claims the item so many times in vain.
func (q *queued) tried(n int) *queued {
	for i := range n {
		q = q.claim(int64(100 + i)).lose()
	}
	return q
}

// TestMisqueuedNotices: an item that is lost, done by who has no claim, buried too early or
// too late, or claimed too early is noticed.
func TestMisqueuedNotices(t *testing.T) {
	pushed := []note{
		{Verb: notePush, Text: "p", At: 10, Delay: time.Second}, {Verb: notePushed, Text: "p", What: "i"},
	}
	of := func(q *queued, more ...note) error {
		_, err := misqueued(slices.Concat(pushed, more), q.j)
		return err
	}
	q := func() *queued { return (&queued{}).push() }
	claimed := func(lease int64, tries int64, at time.Duration) note {
		return note{Verb: noteClaim, What: "i", Lease: lease, Tries: tries, At: at}
	}
	nack := note{Verb: noteNack, Lease: 1, At: time.Second, Delay: time.Second}
	delayed := (&queued{}).did(event{key: inQueue("item"), value: "p"},
		event{key: inQueue("claim"), lease: 50}).lose().claim(1).ack(1)
	judged(t, []judging{
		{"done", "", of(q().claim(1).ack(1), claimed(1, 1, 20))},
		{"done after a worker died", "", of(q().claim(1).lose().claim(2).ack(2))},
		{"dead after all tries", "", of(q().tried(maxTries).bury())},
		{
			"given back", "",
			of(q().claim(1).delay(9).lose().claim(2).ack(2), nack, claimed(2, 2, 2*time.Second)),
		},
		{"pushed with a delay", "", of(delayed, claimed(1, 1, 2*time.Second))},
		{
			"an ack that ignores its token", "was done by 1 while 2 had it",
			of(q().claim(1).lose().claim(2).ack(1)),
		},
		{
			"an ack of what nobody has", "was done by 1 while 0 had it",
			of(q().claim(1).lose().ack(1)),
		},
		{"claimed twice", "is claimed by 2 while 1 has it", of(q().claim(1).claim(2).ack(2))},
		{"never done", "i (p) is left in the queue", of(q().claim(1).lose())},
		{"lost", "p) was pushed, and is neither done nor dead", of((&queued{}).did())},
		{
			"gone and not done", "went and was not done",
			of(q().claim(1).did(event{key: inQueue("item"), gone: true})),
		},
		{
			"dead too early", fmt.Sprintf("dead after %d tries", maxTries-1),
			of(q().tried(maxTries - 1).bury()),
		},
		{
			"dead too late", fmt.Sprintf("dead after %d tries", maxTries+1),
			of(q().tried(maxTries + 1).bury()),
		},
		{
			"a dead letter that goes", `the dead letter "p" went`,
			of(q().tried(maxTries).bury().did(event{key: inQueue("dead"), gone: true})),
		},
		{
			"claimed while it waits", "claimed by 2 while 9 has it",
			of(q().claim(1).delay(9).claim(2).ack(2)),
		},
		{
			"a delay that is too short", "was to wait for 1s at 1s",
			of(q().claim(1).delay(9).lose().claim(2).ack(2), nack, claimed(2, 2, 2*time.Second-1)),
		},
		{
			"pushed with a delay that is too short", "was to wait for 1s",
			of(delayed, claimed(1, 1, time.Second)),
		},
		{
			"a claim from nowhere", "is not in the journal",
			of(q().claim(1).ack(1), claimed(2, 1, 20)),
		},
		{
			"a try too many", "for the 6th time",
			of(q().claim(1).ack(1), claimed(1, maxTries+1, 20)),
		},
		{
			"done twice", "is done twice",
			of(q().claim(1).ack(1).did(event{key: donePrefix + "p", value: "1"})),
		},
		{
			"done, and nobody pushed it", "nobody pushed it",
			of(q().claim(1).ack(1).did(event{key: donePrefix + "other", value: "1"})),
		},
	})
}

// TestLeftNotices: what stays in the store is noticed.
func TestLeftNotices(t *testing.T) {
	of := func(key string) error { return left(journal{1: {{key: usedPrefix + key}}}) }
	judged(t, []judging{
		{"a note of who had an ID", "", of(thePool + "/was/1")},
		{"the preferred", "", of(theElection + "~preferred")},
		{"a lock", "used/mutex/1 is left", of(theMutex + "/1")},
		{"a candidate", "is left", of(theElection + "~candidates/1")},
		{"an ID", "is left", of(thePool + "/held/1")},
		{"a try", "is left", of(theQueue + "/try/i")},
	})
}
