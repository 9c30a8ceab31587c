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

// pair is a key and its value.
type pair struct{ key, value string }

// index is a Mirror, and the marks of a test.
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

// fill reads a range in the term in which the cache is open; the pairs are "key=value".
func fill(s *Set[pair], r keyrange.Range, pairs ...string) bool {
	a := Answer[pair]{Term: s.term, Revision: 7}
	for _, text := range pairs {
		k, v, _ := strings.Cut(text, "=")
		a.Values = append(a.Values, pair{k, v})
	}
	return s.Complete(s.Begin(r), a)
}

// show is what the cache knows of a key.
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

// What was read is there, absence too, and a read of a range is told only its gaps.
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

// What a cache says that it has is bounded, and never less than what it has (C1).
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
		t.Fatalf("%d ranges", len(has))
	}
	for i := range 3 * maxReopenRanges {
		key := fmt.Sprintf("%c%06d", "bp"[i%2], i)
		if !slices.ContainsFunc(has, func(r keyrange.Range) bool { return r.Span().Has(key) }) {
			t.Fatalf("%s is missing", key)
		}
	}
	for _, r := range has {
		want(t, "within what is held", s.Holds(r), true)
	}
}

// TestHasOfLongKeys: what is said that the cache has is no longer than what is held, or
// hasBytes, however long its keys are.
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
		t.Errorf("it has %.100q", fmt.Sprint(has))
	}
}

// world is a Set, the slow model of it, and what the leader believes. Keys are one letter;
// the space of keys is cells: a letter, and what is between it and the next.
type world struct {
	t      *testing.T
	r      *rand.Rand
	set    *Set[pair]
	index  *index
	store  map[string]string
	known  map[string]string // what the cache knows by the model, of each cell
	leader map[string]bool   // the cells that the leader believes the cache to have
	seq    uint64
	wait   []notified // invalidations that are not acknowledged
	fills  []*reading
}

type notified struct {
	seq uint64
	key string
}

type reading struct {
	fill *Fill
	what keyrange.Range
	term uint64 // 0: a write is pending, so it may not be kept
}

const letters = "bcdefghijk"

// cells returns a key of each cell of a range.
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
		w.told()
	case 6:
		what, other := w.anyRange(), w.anyRange()
		w.forget(what)
		w.forget(other)
		w.set.Drop(what, other)
	case 7:
		w.read(w.anyRange())
	}
	w.made()
	w.check()
}

// grant is the leader's part of a fill.
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

// answer answers a fill, from the store as it is now.
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

// made takes note of what made room: the model does not know what does.
func (w *world) made() {
	if entries, _ := w.set.Len(); entries < w.set.cfg.MaxEntries-2*len(letters) {
		return // so nothing did
	}
	for c := range w.known {
		if _, _, known := w.set.View().Get(c); !known {
			delete(w.known, c)
		}
	}
}

// write begins some writes, which are done when the leader believes that nobody has the keys.
func (w *world) write() {
	var drop []keyrange.Range
	for range 1 + w.r.IntN(3) {
		what := keyrange.Range{Key: string(letters[w.r.IntN(len(letters))])}
		w.seq++
		w.wait = append(w.wait, notified{w.seq, what.Key})
		drop = append(drop, what)
	}
	w.set.Invalidate(1, w.seq, drop)
	for _, what := range drop {
		w.forget(what)
	}
}

func (w *world) forget(what keyrange.Range) {
	for _, c := range cells(what) {
		delete(w.known, c)
	}
}

// believe makes the leader believe that nothing is left of a range.
func (w *world) believe(gone keyrange.Range) {
	for _, c := range cells(gone) {
		delete(w.leader, c)
	}
}

// told is what the cache tells, and the writes that waited for it.
func (w *world) told() {
	told, _ := w.set.TakeReport(w.r.IntN(2) == 0)
	for _, r := range told.Dropped {
		w.believe(r)
	}
	for len(w.wait) > 0 && w.wait[0].seq <= told.Seq {
		key := w.wait[0].key
		w.believe(keyrange.Range{Key: key})
		w.store[key] = []string{"", fmt.Sprint(w.wait[0].seq)}[w.r.IntN(2)]
		w.wait = w.wait[1:]
	}
}

// read reads a range by pieces, and compares.
func (w *world) read(what keyrange.Range) {
	values, _, gaps := w.set.Range(what)
	if gaps != nil {
		return
	}
	for _, c := range cells(what) {
		v, known := w.known[c]
		i := slices.IndexFunc(values, func(p pair) bool { return p.key == c })
		if !known || (v == "") != (i < 0) || i >= 0 && values[i].value != v {
			w.t.Fatalf("range %v: %v; %q is %q, known %v", what, values, c, v, known)
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
			w.t.Fatalf("%q: %v %v, by the model %q %v", c, p, has, v, known)
		}
		if known && !w.leader[c] {
			w.t.Fatalf("the leader does not know that the cache has %q", c)
		}
		if known && v != w.store[c] {
			w.t.Fatalf("%q is %q, the cache says %q", c, w.store[c], v)
		}
		if at, ok := w.index.found[c]; ok && at != p {
			w.t.Fatalf("the index says of %q %v, it is %v", c, at, p)
		} else if !ok && p != nil {
			w.t.Fatalf("the index does not have %q", c)
		}
	}
}

// TestWalk: at random, against a model. What the cache knows is what the store has, and the
// leader knows that it has it (C1).
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

// alwaysUsed is a mark of a copy that somebody reads again and again.
type alwaysUsed struct{}

func (alwaysUsed) Used() bool { return true }

// Room is made even if all copies are in use all the time.
func TestAllInUse(t *testing.T) {
	s, _ := newSet(Config[pair]{Holds: []keyrange.Range{all}, MaxEntries: 2})
	s.cfg.NewMark = func() Mark { return alwaysUsed{} }
	s.Opened(1)
	for _, k := range []string{"b", "c", "d"} {
		fill(s, keyrange.Range{Key: k})
	}
	if entries, _ := s.Len(); entries != 2 {
		t.Errorf("there are %d copies", entries)
	}
}
