package storage

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// TestMemlogTwin drives a memlog and raft.MemoryStorage, which keeps everything,
// through the same random changes and asks both the same questions.
func TestMemlogTwin(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 0))
		l := memlog{tailMax: int64(rng.IntN(20000))}
		l.reset(position{})
		twin := raft.NewMemoryStorage()
		term := uint64(1)
		for range 300 {
			last, _ := twin.LastIndex()
			first, _ := twin.FirstIndex()
			switch n := rng.IntN(10); {
			case n < 7:
				at := last + 1
				if rng.IntN(3) == 0 && last >= first {
					at = first + rng.Uint64N(last-first+1)
					term++
				}
				var es []*raftpb.Entry
				for range 1 + rng.IntN(6) {
					es = append(es, entry(at, term, strings.Repeat("x", rng.IntN(4000))))
					at++
				}
				l.append(es)
				if err := twin.Append(es); err != nil {
					t.Fatal(err)
				}
			case n < 8 && last >= first:
				i := first + rng.Uint64N(last-first+1)
				pt, _ := twin.Term(i)
				l.compact(position{i, pt})
				if err := twin.Compact(i); err != nil {
					t.Fatal(err)
				}
			}
			compareTwin(t, &l, twin, rng)
		}
	}
}

func compareTwin(t *testing.T, l *memlog, twin *raft.MemoryStorage, rng *rand.Rand) {
	t.Helper()
	first, _ := twin.FirstIndex()
	last, _ := twin.LastIndex()
	if l.first() != first || l.last != last {
		t.Fatalf("[%d, %d], want [%d, %d]", l.first(), l.last, first, last)
	}
	if l.tailFirst < first || l.tailFirst > last+1 ||
		uint64(len(l.tail)-l.head) != last+1-l.tailFirst {
		t.Fatalf("tail from %d holds %d, log is [%d, %d]",
			l.tailFirst, len(l.tail)-l.head, first, last)
	}
	for i := max(first, 2) - 2; i <= last+2; i++ {
		got, err := l.term(i)
		want, wantErr := twin.Term(i)
		if got != want || err != wantErr {
			t.Fatalf("term of %d: %d (%v), want %d (%v)", i, got, err, want, wantErr)
		}
	}
	if last < first {
		return
	}
	all, err := twin.Entries(first, last+1, 1<<40)
	if err != nil {
		t.Fatal(err)
	}
	var tail int64
	var after uint64
	from := first - 1 + rng.Uint64N(last-first+2)
	for _, e := range all {
		if e.GetIndex() >= l.tailFirst {
			tail += int64(entrySize(e))
		}
		if e.GetIndex() > from {
			after += uint64(entrySize(e))
		}
	}
	if tail != l.tailBytes || tail > l.tailMax && l.tailFirst < last {
		t.Fatalf("tail is %d bytes, counted as %d, limit %d", tail, l.tailBytes, l.tailMax)
	}
	const slack = 2*markBytes + 8000
	if got := l.bytesAfter(from); got+slack < after || got > after+slack {
		t.Fatalf("%d bytes after %d, really %d", got, from, after)
	}
	lo := l.tailFirst
	if lo > last {
		return
	}
	size := rng.Uint64N(20000)
	want, err := twin.Entries(lo, last+1, size)
	if err != nil {
		t.Fatal(err)
	}
	if got := l.cached(lo, last+1, size); !slices.Equal(got, want) {
		t.Fatalf("entries from %d, at most %d bytes: %d, want %d", lo, size, len(got), len(want))
	}
}

// TestMemlogLetsGo: what left the tail is not kept alive by its array, and a slice
// handed out does not change when the log does.
func TestMemlogLetsGo(t *testing.T) {
	l := memlog{tailMax: 100}
	l.reset(position{})
	l.append(entries(1, 5, 1))
	out := l.cached(l.tailFirst, 5, 1<<20)
	before := slices.Clone(out)
	l.append(entries(3, 50, 2))
	if !slices.Equal(out, before) {
		t.Error("a slice handed out was changed")
	}
	for i, e := range l.tail[:cap(l.tail)] {
		if (e != nil) != (i >= l.head && i < len(l.tail)) {
			t.Errorf("slot %d: %v", i, e)
		}
	}
}

// TestMemlogSizes: the size of the log is known exactly while it is in memory, and guessed in
// proportion where entries that are not in memory were replaced. It is remembered in steps, and a
// term once, however long the log is.
func TestMemlogSizes(t *testing.T) {
	const size = markBytes / 4
	e := func(index uint64) []*raftpb.Entry {
		e := entry(index, 1, strings.Repeat("x", size))
		return []*raftpb.Entry{entry(index, 1, string(e.Data[:size-9]))}
	}
	fill := func(tail int64, last uint64) *memlog {
		l := &memlog{tailMax: tail}
		l.reset(position{})
		for i := range last {
			l.append(e(i + 1))
		}
		return l
	}
	if got := entrySize(e(1)[0]); got != size {
		t.Fatalf("an entry of %d bytes", got)
	}
	for _, tail := range []int64{1 << 30, size} {
		l := fill(tail, 20)
		want := []sizeMark{
			{0, 0},
			{4, markBytes},
			{8, 2 * markBytes},
			{12, 3 * markBytes},
			{16, 4 * markBytes},
			{20, 5 * markBytes},
		}
		if !slices.Equal(l.marks, want) || len(l.terms) != 2 {
			t.Errorf("marks %v, terms %v", l.marks, l.terms)
		}
		for index, want := range map[uint64]uint64{
			0: 5 * markBytes, 3: 5 * markBytes, 4: 4 * markBytes, 7: 4 * markBytes, 19: markBytes,
			20: 0, 21: 0,
		} {
			if got := l.bytesAfter(index); got != want {
				t.Errorf("after %d: %d bytes, want %d", index, got, want)
			}
		}
		if l.truncate(15); l.bytes != 14*size || l.last != 14 {
			t.Errorf("tail %d, cut at 15: %d bytes, want %d", tail, l.bytes, 14*size)
		}
		if l.append(e(15)); l.bytesAfter(15) != 0 {
			t.Errorf("after the last: %d bytes", l.bytesAfter(15))
		}
		l.compact(position{9, 1})
		if len(l.marks) != 2 || len(l.terms) != 1 || l.bytesAfter(0) != 7*size {
			t.Errorf("compacted: marks %v, terms %v, %d bytes", l.marks, l.terms, l.bytesAfter(0))
		}
	}
	if l := fill(3*size, 20); l.tailFirst != 18 || len(l.tail)-l.head != 3 {
		t.Errorf("of three entries in memory the first is %d", l.tailFirst)
	} else if l.truncate(18); l.bytes != 17*size || len(l.tail) != l.head {
		t.Errorf("cut where memory begins: %d bytes", l.bytes)
	}
	if got := between(sizeMark{10, 100}, sizeMark{20, 200}, 13); got != 130 {
		t.Errorf("three tenths of the way from 100 to 200: %d", got)
	}
	if got := between(sizeMark{10, 100}, sizeMark{20, 200}, 20); got != 200 {
		t.Errorf("all of the way from 100 to 200: %d", got)
	}
	if got := entrySize(&raftpb.Entry{}); got != 0 {
		t.Errorf("an empty entry is %d bytes", got)
	}
}

// sized is an entry of n bytes.
func sized(index uint64, n int) []*raftpb.Entry {
	e := entry(index, 1, "")
	e.Data = make([]byte, n)
	for entrySize(e) > n {
		e.Data = e.Data[1:]
	}
	return []*raftpb.Entry{e}
}

// TestMemlogSizesDiffer: what is left of a log is measured where memory begins, and guessed from
// the nearest sizes that are remembered, though its entries are not of one size.
func TestMemlogSizesDiffer(t *testing.T) {
	const quarter = markBytes / 4
	for _, c := range []struct {
		cut   uint64
		sizes []int
		want  int
	}{
		{3, []int{100, 9000, 100}, 9100},
		{2, []int{quarter, quarter, quarter, quarter, 9 * markBytes}, quarter},
	} {
		l := memlog{tailMax: 1}
		l.reset(position{})
		for i, n := range c.sizes {
			l.append(sized(uint64(i+1), n))
		}
		if l.truncate(c.cut); l.bytes != uint64(c.want) {
			t.Errorf("%v cut at %d: %d bytes, want %d", c.sizes, c.cut, l.bytes, c.want)
		}
	}
	l := memlog{tailMax: 1}
	l.reset(position{})
	if l.append(sized(1, markBytes-1)); len(l.marks) != 1 {
		t.Errorf("a size is remembered too early: %v", l.marks)
	}
}

// TestMemlogTail: as much is kept in memory as was asked for, the newest entry always, what comes
// after a compaction too, and the array does not grow with the log.
func TestMemlogTail(t *testing.T) {
	l := memlog{tailMax: 10}
	l.reset(position{})
	for i := range uint64(1000) {
		l.append([]*raftpb.Entry{entry(i+1, 1, "more than ten bytes")})
		if l.tailFirst != i+1 || len(l.tail)-l.head != 1 {
			t.Fatalf("entry %d: %d are in memory", i+1, len(l.tail)-l.head)
		}
	}
	if cap(l.tail) > 16 {
		t.Errorf("an array of %d for one entry", cap(l.tail))
	}
	l = memlog{tailMax: 1 << 20}
	l.reset(position{})
	l.append(entries(1, 21, 1))
	l.compact(position{5, 1})
	if l.tailFirst != 6 || l.head != 5 {
		t.Errorf("after 5 was compacted memory begins at %d", l.tailFirst)
	}
	l.truncate(15)
	for i, e := range l.tail[:cap(l.tail)] {
		if (e != nil) != (i >= 5 && i < 14) {
			t.Errorf("slot %d: %v", i, e)
		}
	}
	if l.has(position{99, 0}) || !l.has(position{5, 1}) || l.has(position{5, 2}) {
		t.Error("what the log has")
	}
	l.compact(position{12, 1})
	if l.head != 0 {
		t.Errorf("the array begins with %d slots that nobody uses", l.head)
	}
}
