package directory

import (
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"testing"

	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// The tests in this file count operations when clients create large numbers of caches, writes or
// keys. They do not check times; BenchmarkFlat in test/sim measures these.

// counted is a State in which every lease has the same keys. It counts calls of Keys and the keys
// returned.
type counted struct {
	keys        []string
	asked, sent int
}

func (s *counted) Keys(lease.ID) iter.Seq[string] {
	s.asked++
	return func(yield func(string) bool) {
		for _, k := range s.keys {
			if s.sent++; !yield(k) {
				return
			}
		}
	}
}

func (s *counted) Expiry(lease.ID) (lease.Instant, bool) { return 90_000, true }

// holding returns a directory with the given number of caches. Each of them holds all keys and may
// have copies of all of them.
func holding(s State, caches int, l Limits) *Directory {
	d := New(1, s, l)
	d.Advance(1)
	for id := lease.ID(1); id <= lease.ID(caches); id++ {
		d.Hold(id, lease.Token(id), []keyrange.Range{keyrange.All}, true)
		d.Open(Opening{ID: id, Token: lease.Token(id), From: Origin{Member: 1}})
	}
	d.Invalidations()
	return d
}

// admitted admits a write and fails the test unless the write proceeds immediately (if now is set)
// or waits (if it is not).
func admitted(t *testing.T, d *Directory, w *Write, now bool) *Write {
	t.Helper()
	if got, err := d.Admit(w); err != nil || got != now {
		t.Fatalf("it goes on: %v, %v", got, err)
	}
	return w
}

// TestManyStuck covers writes that end leases while many commands that attach keys to one of those
// leases are pending. Such a write checks its leases again when the last of these commands is done,
// not after each command.
func TestManyStuck(t *testing.T) {
	const n = 300
	s := &counted{}
	d := holding(s, 0, Limits{Ending: 2 * n})
	d.Hold(9999, 9999, []keyrange.Range{{Key: "held"}}, false)
	var attaching []*Write
	for range n {
		w := &Write{Touches: []keyrange.Range{{Key: "held"}}, Attaches: []lease.ID{1}}
		attaching = append(attaching, admitted(t, d, w, true))
	}
	for id := range lease.ID(n) {
		admitted(t, d, &Write{Ends: []lease.ID{id + 2, 1}, Urgent: true}, false)
	}
	s.asked = 0
	for _, w := range attaching {
		d.Finish(w)
	}
	if got := len(d.Ready()); got != n {
		t.Errorf("%d of %d go on", got, n)
	}
	if s.asked > 10*n {
		t.Errorf("%d times somebody looked at the keys of a lease, for %d writes", s.asked, n)
	}
	mustBeSound(d)
}

// TestStuckWriteNotRechecked checks that stuck writes are not checked again until everything they
// wait for is done. Nothing is recorded for a lease without pending commands.
func TestStuckWriteNotRechecked(t *testing.T) {
	const n = 300
	held := []keyrange.Range{{Key: "held"}}
	for _, attach := range []Write{{AttachesAny: true}, {Attaches: []lease.ID{1}}} {
		d := holding(&counted{}, 0, Limits{Ending: 2 * n})
		d.Hold(9999, 9999, held, false)
		var attaching, ending []*Write
		for range n {
			w := attach
			w.Touches = held
			attaching = append(attaching, admitted(t, d, &w, true))
		}
		for range n {
			w := &Write{Ends: []lease.ID{1}, Urgent: true}
			ending = append(ending, admitted(t, d, w, false))
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for _, w := range attaching[1:] {
			d.Finish(w)
		}
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > n*n {
			t.Errorf("%d bytes for %d commands that have their outcome", took, n-1)
		}
		for _, w := range slices.Concat(attaching[:1], ending) {
			d.Finish(w)
			mustBeSound(d)
		}
		if len(d.writes.leases) > 0 {
			t.Errorf("something is under way of %d leases", len(d.writes.leases))
		}
	}
}

// TestManyAttachers checks that commands that may attach keys to any lease wait for all stuck
// writes as a group, so that the number of links stays small.
func TestManyAttachers(t *testing.T) {
	const n = 300
	d := holding(&counted{}, 0, Limits{Ending: 2 * n})
	d.Hold(9999, 9999, []keyrange.Range{{Key: "held"}}, false)
	held := []keyrange.Range{{Key: "held"}}
	first := admitted(t, d, &Write{Touches: held, AttachesAny: true}, true)
	for id := range lease.ID(n) {
		admitted(t, d, &Write{Ends: []lease.ID{id + 1}, Urgent: true}, false)
	}
	links := 0
	for range n {
		w := admitted(t, d, &Write{Touches: held, AttachesAny: true, Urgent: true}, false)
		links += w.behind
	}
	if links > 2*n {
		t.Errorf("%d writes wait for others %d times", n, links)
	}
	mustBeSound(d)
	d.Finish(first)
	if got := len(d.Ready()); got != 2*n {
		t.Errorf("%d of %d go on", got, 2*n)
	}
	mustBeSound(d)
}

// TestManyLinks checks that a write to a range is rejected if it would have to wait for so many
// earlier writes to keys in the range that it would exceed the limit on links. Writes that are
// already waiting are not affected.
func TestManyLinks(t *testing.T) {
	const n, most = 200, 1000
	d := holding(&counted{}, 1, Limits{Links: most})
	all := &Write{Touches: []keyrange.Range{{Key: "k", End: "l"}}}
	admitted(t, d, all, false)
	var refused, waits int
	for i := range n {
		key := keyrange.Range{Key: fmt.Sprintf("k%03d", i)}
		admitted(t, d, &Write{Touches: []keyrange.Range{key}}, false)
	}
	for range n {
		now, err := d.Admit(&Write{Touches: []keyrange.Range{{Key: "k", End: "l"}}})
		switch {
		case now:
			t.Fatal("one goes on before those in front of it")
		case err == nil:
			waits++
		case errors.Is(err, errFull):
			refused++
		}
		if d.writes.links > most {
			t.Fatalf("%d links", d.writes.links)
		}
	}
	if refused == 0 || waits == 0 {
		t.Errorf("%d were refused, %d wait", refused, waits)
	}
	mustBeSound(d)
	for done := 0; done < 1+n+waits; {
		for _, i := range d.Invalidations() {
			d.Ack(Ack{ID: i.ID, Token: i.Token, Term: 1, Seq: i.Seq, Open: 1})
		}
		ready := d.Ready()
		if len(ready) == 0 {
			t.Fatalf("%d of %d went on", done, 1+n+waits)
		}
		for _, w := range ready {
			d.Finish(w)
			done++
		}
	}
	mustBeSound(d)
}

// TestManyInvalidations checks that a step sends a bounded number of invalidations, including
// resent ones, and that the next step follows immediately.
func TestManyInvalidations(t *testing.T) {
	const n, most = 100, 7
	d := holding(&counted{}, n, Limits{Invalidated: most})
	admitted(t, d, &Write{Touches: []keyrange.Range{{Key: "k"}}}, false)
	for _, now := range []lease.Instant{1, 1 + lease.Instant(resendFirst)} {
		sent := make(map[lease.ID]bool)
		d.Advance(now)
		for len(sent) < n {
			list := d.Invalidations()
			if len(list) == 0 || len(list) > most {
				t.Fatalf("%d are told in one step, after %d", len(list), len(sent))
			}
			for _, i := range list {
				sent[i.ID] = true
			}
			if at, ok := d.Next(); now == 1 && len(sent) < n && (!ok || at > now) {
				t.Fatalf("the next step is at %d, %v", at, ok)
			}
		}
	}
}

// TestManyAreOver checks that a step processes a bounded number of caches whose leases have ended,
// and that the next step follows immediately.
func TestManyAreOver(t *testing.T) {
	const n, most = 100, 7
	d := holding(&counted{}, n, Limits{Expired: most})
	w := admitted(t, d, &Write{Touches: []keyrange.Range{{Key: "k"}}}, false)
	for steps := 1; !d.HasReady(); steps++ {
		before := w.blocked
		at, ok := d.Next()
		if d.Advance(max(at, 90_000)); !ok || before-w.blocked > most || steps > n {
			t.Fatalf("step %d at %d, %v: %d caches were looked at", steps, at, ok,
				before-w.blocked)
		}
	}
	mustBeSound(d)
}

// TestManyAreFreed checks that a step processes a bounded number of acknowledgments and of writes
// released by them, and that the next step follows immediately. Writes proceed in order.
func TestManyAreFreed(t *testing.T) {
	const n, caches, most = 100, 3, 7
	d := holding(&counted{}, caches, Limits{Freed: most})
	var list []*Write
	for i := range n {
		w := &Write{Touches: []keyrange.Range{{Key: fmt.Sprintf("k%03d", i)}}}
		list = append(list, admitted(t, d, w, false))
	}
	for _, i := range d.Invalidations() {
		d.Ack(Ack{ID: i.ID, Token: i.Token, Term: 1, Seq: i.Seq, Open: 1})
		d.Ack(Ack{ID: i.ID, Token: i.Token, Term: 1, Seq: i.Seq, Open: 1}) // a duplicate
	}
	var went []*Write
	for steps := 0; len(went) < n; steps++ {
		ready := d.Ready()
		if len(ready) > most || steps > 3*caches*n/most {
			t.Fatalf("step %d: %d go on, after %d", steps, len(ready), len(went))
		}
		went = append(went, ready...)
		if at, ok := d.Next(); d.Behind() != (len(went) < n) || d.Behind() && (!ok || at > d.now) {
			t.Fatalf("%d went on, behind %v, the next step is at %d, %v", len(went), d.Behind(), at, ok)
		}
		mustBeSound(d)
		d.NextStep()
		d.Advance(d.now)
	}
	if !slices.Equal(went, list) {
		t.Error("they go on in another order")
	}
	for _, w := range list {
		d.Finish(w)
	}
	if s := d.Stats(); s.Unacknowledged != 0 || s.Waiting != 0 {
		t.Errorf("at the end: %+v", s)
	}
}

// TestManyWaitForOne checks that the work is also split into steps when a cache that many writes
// wait for is released. This includes acknowledgments from the cache that were not yet processed.
func TestManyWaitForOne(t *testing.T) {
	const n, most = 20, 7
	for _, acknowledged := range []bool{false, true} {
		d := holding(&counted{}, 1, Limits{Freed: most})
		var list []*Write
		for id := range n {
			list = append(list, admitted(t, d, &Write{Touches: []keyrange.Range{
				{Key: fmt.Sprint(id)},
			}}, false))
		}
		if i := d.Invalidations(); acknowledged {
			d.Ack(Ack{ID: 1, Token: 1, Term: 1, Seq: i[0].Seq, Open: 1})
			for _, w := range list {
				d.Finish(w) // these writes are abandoned
			}
		}
		d.Release(1)
		went := 0
		for steps := 0; !d.Idle(); steps++ {
			ready := len(d.Ready())
			if went += ready; ready > most || steps > n {
				t.Fatalf("step %d: %d go on", steps, ready)
			}
			mustBeSound(d)
			d.NextStep()
			d.Advance(d.now)
		}
		if !acknowledged && went != n {
			t.Errorf("%d of %d went on", went, n)
		}
		if at, ok := d.Next(); ok {
			t.Errorf("nothing is left to do, and the next step is at %d", at)
		}
	}
}

// TestUrgentLimit checks that the number of urgent writes in flight is bounded, no matter whether
// waiting writes proceed or are abandoned. Other writes are not limited.
func TestUrgentLimit(t *testing.T) {
	const n, most = 40, 7
	s := &counted{keys: []string{"k"}}
	d := holding(s, 1, Limits{Ending: most})
	var list []*Write
	for id := range lease.ID(n) {
		list = append(list, admitted(t, d, &Write{Ends: []lease.ID{id + 2}, Urgent: true}, false))
	}
	put := admitted(t, d, &Write{Touches: []keyrange.Range{{Key: "other"}}}, false)
	for _, i := range d.Invalidations() {
		d.Ack(Ack{ID: i.ID, Token: i.Token, Term: 1, Seq: i.Seq, Open: 1})
	}
	ready := d.Ready()
	if !slices.Equal(ready, append(list[:most:most], put)) {
		t.Fatalf("%d go on", len(ready))
	}
	d.Finish(put)
	for _, w := range list[most : 2*most] { // these are still waiting
		d.Finish(w)
	}
	if d.HasReady() {
		t.Fatal("there was no room")
	}
	for i, w := range slices.Concat(list[:most], list[2*most:n-most]) {
		d.Finish(w)
		ready := d.Ready()
		if !slices.Equal(ready, list[2*most+i:][:1]) {
			t.Fatalf("after %d: %d go on", i, len(ready))
		}
		mustBeSound(d)
	}
	for _, w := range list[n-most:] {
		d.Finish(w)
	}
	if d.HasReady() || len(d.Waiting()) > 0 || len(d.writes.crowd) > 0 {
		t.Error("some are left")
	}
}

// TestUrgentHaveFewKeys checks that the total number of keys of urgent writes in flight is bounded,
// whether or not the keys are cached. A single write may exceed the bound.
func TestUrgentHaveFewKeys(t *testing.T) {
	const n, most = 20, 2
	for _, c := range []struct{ keys, together int }{{1, 2}, {4, 2}, {7, 2}, {8, 1}, {100, 1}} {
		s := &counted{keys: slices.Repeat([]string{"k"}, c.keys)}
		d := holding(s, 1, Limits{Ending: most})
		for id := range lease.ID(n) {
			admitted(t, d, &Write{Ends: []lease.ID{id + 2}, Urgent: true}, false)
		}
		for _, i := range d.Invalidations() {
			d.Ack(Ack{ID: i.ID, Token: i.Token, Term: 1, Seq: i.Seq, Open: 1})
		}
		var inFlight []*Write
		for left := n; left > 0; left-- {
			inFlight = append(inFlight, d.Ready()...)
			if len(inFlight) != min(c.together, left) {
				t.Fatalf("%d keys each: %d are under way, %d are left", c.keys, len(inFlight), left)
			}
			mustBeSound(d)
			d.Finish(inFlight[0])
			inFlight = inFlight[1:]
		}
		if d.writes.endingKeys != 0 {
			t.Errorf("%d keys each: at the end %d are under way", c.keys, d.writes.endingKeys)
		}
	}
}

// TestSpent checks that a step ends after visiting a bounded number of items. Visits inside
// Uncharged do not count, and Uncharged returns their number.
func TestSpent(t *testing.T) {
	s := &counted{keys: slices.Repeat([]string{"a"}, 5)}
	d := holding(s, 0, Limits{Work: 10})
	look := func() { d.holdsKey(1) } // no cache holds the keys, so it visits all of them
	if got := d.Uncharged(func() { look(); look() }); got != 10 || d.Spent() {
		t.Errorf("apart it has looked at %d, and has enough: %v", got, d.Spent())
	}
	if look(); d.Spent() {
		t.Error("it has enough too early")
	}
	if look(); !d.Spent() {
		t.Error("it has not enough")
	}
	if d.NextStep(); d.Spent() {
		t.Error("the next step has nothing to look at")
	}
	const caches = 3 // each of them has the key and must drop it
	d = holding(s, caches, Limits{})
	if got := d.Uncharged(func() { admitted(t, d, touches("k"), false) }); got != caches*(1+dropWork) {
		t.Errorf("a write has looked at %d", got)
	}
	if got := d.Uncharged(func() { admitted(t, d, touches("k"), false) }); got != caches {
		t.Errorf("a write to a pending key has looked at %d", got)
	}
}

// TestFirstKeyIsHeld checks that the search for a cached key of a lease stops at the first one
// found.
func TestFirstKeyIsHeld(t *testing.T) {
	s := &counted{keys: slices.Repeat([]string{"a"}, 1000)}
	d := holding(s, 1, Limits{})
	if !d.Concerns(&Write{Ends: []lease.ID{1}}) {
		t.Error("nobody holds them")
	}
	if s.sent != 1 {
		t.Errorf("%d keys were looked at", s.sent)
	}
}

// TestManyAreLate checks that listing slow caches does not cost more when far more caches are slow
// than are listed.
func TestManyAreLate(t *testing.T) {
	took := func(n int) uint64 {
		d := holding(&counted{}, n, Limits{})
		admitted(t, d, &Write{Touches: []keyrange.Range{{Key: "k"}}}, false)
		d.Advance(5000)
		least := ^uint64(0)
		for range 5 { // take the minimum, because other goroutines may allocate as well
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			list, _ := d.Late()
			runtime.ReadMemStats(&after)
			if len(list) != min(n, lateKept) {
				t.Fatalf("%d are named of %d", len(list), n)
			}
			least = min(least, after.TotalAlloc-before.TotalAlloc)
		}
		return least
	}
	if few, many := took(lateKept), took(20*lateKept); many > 2*few {
		t.Errorf("%d bytes to name those who are slow, %d if they are twenty times as many", few, many)
	}
}
