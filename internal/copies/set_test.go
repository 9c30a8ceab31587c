package copies

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"leasehold.dev/internal/keyrange"
)

type pair struct{ key, value string }

// index is a Mirror for tests.
type index struct{ found map[string]*pair }

func (x *index) Put(key string, p *pair, _ Mark) { x.found[key] = p }
func (x *index) Delete(key string)               { delete(x.found, key) }

type mark struct{ used bool }

func (m *mark) Used() bool { used := m.used; m.used = false; return used }

func newSet(c Config[pair]) (*Set[pair], *index) {
	x := &index{found: make(map[string]*pair)}
	if c.MaxEntries == 0 {
		c.MaxEntries = 1000
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = 1 << 20
	}
	c.Key = func(p *pair) string { return p.key }
	c.Size = func(p *pair) int { return len(p.key) + len(p.value) }
	c.NewMark = func() Mark { return new(mark) }
	c.Mirror = x
	return New(c), x
}

// fill reads a range in the current term; the pairs have the form "key=value".
func fill(s *Set[pair], r keyrange.Range, pairs ...string) bool {
	a := Answer[pair]{Term: s.term, Revision: 7}
	for _, text := range pairs {
		k, v, _ := strings.Cut(text, "=")
		a.Values = append(a.Values, pair{k, v})
	}
	return s.Complete(s.Begin(r), a)
}

// show returns the value of key, "-" if it is known to be missing, and "?" if it is unknown.
func show(s *Set[pair], key string) string {
	p, _, known := s.View().Get(key)
	switch {
	case !known:
		return "?"
	case p == nil:
		return "-"
	default:
		return p.value
	}
}

func shows(s *Set[pair], keys ...string) (out string) {
	for _, k := range keys {
		out += show(s, k)
	}
	return out
}

func want[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

var all = keyrange.Range{Key: "a", End: "z"}

// TestReading checks that present and missing keys are cached, and that only the gaps of a range
// are read.
func TestReading(t *testing.T) {
	s, _ := newSet(Config[pair]{Holds: []keyrange.Range{all, {Key: "~"}}})
	want(t, "closed", s.Begin(keyrange.Range{Key: "b"}) == nil, true)
	s.Opened(1)
	want(t, "not held", s.Begin(keyrange.Range{Key: "a", End: "zz"}) == nil, true)
	want(t, "one", fill(s, keyrange.Range{Key: "b"}, "b=1"), true)
	want(t, "absence", fill(s, keyrange.Range{Key: "c"}), true)
	want(t, "range", fill(s, keyrange.Range{Key: "e", End: "h"}, "e=2", "f=3"), true)
	want(t, "keys", shows(s, "a", "b", "c", "d", "e", "f", "ff", "g", "h"), "?1-?23--?")
	values, revision, gaps := s.Range(keyrange.Range{Key: "ea", End: "g"})
	want(t, "part", fmt.Sprint(values, revision, gaps), "[{f 3}] 7 []")
	_, _, gaps = s.Range(keyrange.Range{Key: "a", End: "i"})
	want(t, "gaps", gaps, []keyrange.Range{
		{Key: "a", End: "b"}, {Key: "b\x00", End: "c"}, {Key: "c\x00", End: "e"}, {Key: "h", End: "i"},
	})
	for _, g := range gaps {
		fill(s, g)
	}
	values, _, gaps = s.Range(keyrange.Range{Key: "a", End: "i"})
	want(t, "joined", fmt.Sprint(values, gaps), "[{b 1} {e 2} {f 3}] []")
	_, _, _, known := s.View().Range(keyrange.Range{Key: "a", End: "i"})
	want(t, "in one piece", known, true)
}

// TestHasIsBounded checks that the list returned by Reopen is bounded and covers every copy (C1).
func TestHasIsBounded(t *testing.T) {
	s, _ := newSet(Config[pair]{
		Holds:      []keyrange.Range{{Key: "a", End: "m"}, {Key: "n", End: "z"}},
		MaxEntries: 1 << 20, MaxBytes: 1 << 30,
	})
	s.Opened(1)
	for i := range 3 * maxReopenRanges {
		fill(s, keyrange.Range{Key: fmt.Sprintf("%c%06d", "bp"[i%2], i)})
	}
	has := s.Reopen()
	if len(has) > maxReopenRanges {
		t.Fatalf("%d ranges, want at most %d", len(has), maxReopenRanges)
	}
	for i := range 3 * maxReopenRanges {
		key := fmt.Sprintf("%c%06d", "bp"[i%2], i)
		if !slices.ContainsFunc(has, func(r keyrange.Range) bool { return r.Span().Has(key) }) {
			t.Fatalf("%s is not covered", key)
		}
	}
	for _, r := range has {
		want(t, "within a held range", s.Holds(r), true)
	}
}

// TestHasOfLongKeys checks that no matter how long the keys are, the list returned by Reopen takes
// at most maxReopenBytes, or consists of the held ranges.
func TestHasOfLongKeys(t *testing.T) {
	s, _ := newSet(Config[pair]{
		Holds:      []keyrange.Range{{Key: "a", End: "m"}, {Key: "n", End: "z"}, {Key: "zz"}},
		MaxEntries: 1 << 20, MaxBytes: 1 << 30,
	})
	s.Opened(1)
	long := strings.Repeat("1", maxReopenBytes/2)
	for _, key := range []string{"b", "c", "p", "q"} {
		fill(s, keyrange.Range{Key: key + long})
	}
	held := []keyrange.Range{{Key: "a", End: "m"}, {Key: "n", End: "z"}}
	if has := s.Reopen(); !slices.Equal(has, held) {
		t.Errorf("Reopen returned %.100q, want %q", fmt.Sprint(has), held)
	}
}

// world contains a Set, a slow model of it, and what the leader knows about the copies. Keys are
// single letters. The key space is divided into cells: each letter, and the gap up to the next
// letter.
type world struct {
	t      *testing.T
	r      *rand.Rand
	set    *Set[pair]
	index  *index
	store  map[string]string
	known  map[string]string // the model: the value of each known cell
	leader map[string]bool   // the cells that the leader believes the cache has
	seq    uint64
	wait   []pendingWrite // unacknowledged invalidations
	fills  []*reading
}

type pendingWrite struct {
	seq uint64
	key string
}

type reading struct {
	fill *Fill
	what keyrange.Range
	term uint64 // 0 means that a write is pending, so the range must not be cached
}

const letters = "bcdefghijk"

// cells returns a key in each cell of a range.
func cells(r keyrange.Range) (out []string) {
	for _, c := range letters {
		for _, key := range []string{string(c), string(c) + "m"} {
			if r.Span().Has(key) {
				out = append(out, key)
			}
		}
	}
	return out
}

func (w *world) anyRange() keyrange.Range {
	i := w.r.IntN(len(letters))
	if w.r.IntN(2) == 0 {
		return keyrange.Range{Key: letters[i : i+1]}
	}
	j := i + 1 + w.r.IntN(len(letters)-i)
	if j == len(letters) {
		return keyrange.Range{Key: letters[i : i+1], End: "z"}
	}
	return keyrange.Range{Key: letters[i : i+1], End: letters[j : j+1]}
}

func (w *world) step() {
	switch w.r.IntN(8) {
	case 0, 1:
		what := w.anyRange()
		if f := w.set.Begin(what); f != nil {
			w.fills = append(w.fills, w.grant(f, what))
		}
	case 2, 3:
		w.answer()
	case 4:
		w.write()
	case 5:
		w.report()
	case 6:
		what, other := w.anyRange(), w.anyRange()
		w.drop(what)
		w.drop(other)
		w.set.Drop(what, other)
	case 7:
		w.read(w.anyRange())
	}
	w.noteEvictions()
	w.check()
}

// grant simulates the leader's part in a fill.
func (w *world) grant(f *Fill, what keyrange.Range) *reading {
	for _, n := range w.wait {
		if what.Span().Has(n.key) {
			return &reading{fill: f, what: what}
		}
	}
	for _, c := range cells(what) {
		w.leader[c] = true
	}
	return &reading{fill: f, what: what, term: 1}
}

// answer answers a random fill from the store's current contents.
func (w *world) answer() {
	if len(w.fills) == 0 {
		return
	}
	i := w.r.IntN(len(w.fills))
	f := w.fills[i]
	w.fills = slices.Delete(w.fills, i, i+1)
	a := Answer[pair]{Term: f.term, Revision: 1}
	for _, c := range cells(f.what) {
		if v := w.store[c]; v != "" {
			a.Values = append(a.Values, pair{c, v})
		}
	}
	if !w.set.Complete(f.fill, a) {
		return
	}
	for _, c := range cells(f.what) {
		w.known[c] = w.store[c]
	}
}

// noteEvictions updates the model after evictions, which the model cannot predict.
func (w *world) noteEvictions() {
	if entries, _ := w.set.Len(); entries < w.set.cfg.MaxEntries-2*len(letters) {
		return // nothing was evicted
	}
	for c := range w.known {
		if _, _, known := w.set.View().Get(c); !known {
			delete(w.known, c)
		}
	}
}

// write starts writes. They take effect once the leader knows that the cache has dropped the keys.
func (w *world) write() {
	var drop []keyrange.Range
	for range 1 + w.r.IntN(3) {
		what := keyrange.Range{Key: string(letters[w.r.IntN(len(letters))])}
		w.seq++
		w.wait = append(w.wait, pendingWrite{w.seq, what.Key})
		drop = append(drop, what)
	}
	w.set.Invalidate(1, w.seq, drop)
	for _, what := range drop {
		w.drop(what)
	}
}

func (w *world) drop(what keyrange.Range) {
	for _, c := range cells(what) {
		delete(w.known, c)
	}
}

// leaderDrops removes a range from the leader's knowledge.
func (w *world) leaderDrops(gone keyrange.Range) {
	for _, c := range cells(gone) {
		delete(w.leader, c)
	}
}

// report delivers a report to the leader and applies the writes that were waiting for it.
func (w *world) report() {
	report, _ := w.set.TakeReport(w.r.IntN(2) == 0)
	for _, r := range report.Dropped {
		w.leaderDrops(r)
	}
	for len(w.wait) > 0 && w.wait[0].seq <= report.Seq {
		key := w.wait[0].key
		w.leaderDrops(keyrange.Range{Key: key})
		w.store[key] = []string{"", fmt.Sprint(w.wait[0].seq)}[w.r.IntN(2)]
		w.wait = w.wait[1:]
	}
}

// read reads a range and compares the result with the model.
func (w *world) read(what keyrange.Range) {
	values, _, gaps := w.set.Range(what)
	if gaps != nil {
		return
	}
	for _, c := range cells(what) {
		v, known := w.known[c]
		i := slices.IndexFunc(values, func(p pair) bool { return p.key == c })
		if !known || (v == "") != (i < 0) || i >= 0 && values[i].value != v {
			w.t.Fatalf("range %v: got %v; the model has %q: %q, known %v", what, values, c, v, known)
		}
	}
}

func (w *world) check() {
	entries, bytes := 0, 0
	for _, row := range w.set.view.rows {
		for _, p := range row {
			entries += p.entries()
			bytes += p.bytes
		}
	}
	if e, b := w.set.Len(); e != entries || b != bytes || e > w.set.cfg.MaxEntries {
		w.t.Fatalf("%d entries, %d bytes; counted %d, %d", e, b, entries, bytes)
	}
	for _, c := range cells(keyrange.Range{Key: "a", End: "z"}) {
		v, known := w.known[c]
		p, _, has := w.set.View().Get(c)
		if has != known || (p == nil) != (v == "") || p != nil && p.value != v {
			w.t.Fatalf("%q: got %v, known %v; the model has %q, known %v", c, p, has, v, known)
		}
		if known && !w.leader[c] {
			w.t.Fatalf("the leader does not know that the cache has %q", c)
		}
		if known && v != w.store[c] {
			w.t.Fatalf("%q is %q in the store, but %q in the cache", c, w.store[c], v)
		}
		if at, ok := w.index.found[c]; ok && at != p {
			w.t.Fatalf("index of %q: %v, want %v", c, at, p)
		} else if !ok && p != nil {
			w.t.Fatalf("%q is missing from the index", c)
		}
	}
}

// TestWalk takes random steps and compares the cache with a model. The cache must agree with the
// store, and the leader must know of every copy (C1).
func TestWalk(t *testing.T) {
	for seed := range uint64(300) {
		w := &world{
			t: t, r: rand.New(rand.NewPCG(seed, 1)), store: make(map[string]string),
			known: make(map[string]string), leader: make(map[string]bool),
		}
		w.set, w.index = newSet(Config[pair]{Holds: []keyrange.Range{all}, MaxEntries: 3 + int(seed%50)})
		w.set.Opened(1)
		for range 400 {
			if w.step(); t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		}
	}
}

// alwaysUsed is the mark of a copy that is in constant use.
type alwaysUsed struct{}

func (alwaysUsed) Used() bool { return true }

// TestAllInUse checks that copies are evicted even if all of them are in constant use.
func TestAllInUse(t *testing.T) {
	s, _ := newSet(Config[pair]{Holds: []keyrange.Range{all}, MaxEntries: 2})
	s.cfg.NewMark = func() Mark { return alwaysUsed{} }
	s.Opened(1)
	for _, k := range []string{"b", "c", "d"} {
		fill(s, keyrange.Range{Key: k})
	}
	if entries, _ := s.Len(); entries != 2 {
		t.Errorf("%d copies, want 2", entries)
	}
}
