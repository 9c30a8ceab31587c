package storage

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// TestMemlogTwin compares a memlog with raft.MemoryStorage, which keeps everything, after random
// changes.
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
				l.append(es, &frame{}, nil)
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
		uint64(len(l.tail)) != last+1-l.tailFirst {
		t.Fatalf("tail from %d holds %d, log is [%d, %d]",
			l.tailFirst, len(l.tail), first, last)
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
	for _, e := range all {
		if e.GetIndex() >= l.tailFirst {
			tail += int64(entrySize(e))
		}
	}
	if tail != l.tailBytes || tail > l.tailMax && l.tailFirst < last {
		t.Fatalf("tail is %d bytes, counted as %d, limit %d", tail, l.tailBytes, l.tailMax)
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

// TestMemlogFreesEntries checks that the array of the tail does not keep old entries alive, and
// that returned slices do not change.
func TestMemlogFreesEntries(t *testing.T) {
	l := memlog{tailMax: 100}
	l.reset(position{})
	l.append(entries(1, 5, 1), &frame{}, nil)
	out := l.cached(l.tailFirst, 5, 1<<20)
	before := slices.Clone(out)
	l.append(entries(3, 50, 2), &frame{}, nil)
	if !slices.Equal(out, before) {
		t.Error("a returned slice was changed")
	}
	for i, e := range l.tail[:cap(l.tail)] {
		if (e != nil) != (i < len(l.tail)) {
			t.Errorf("slot %d: %v", i, e)
		}
	}
}

// TestMemlogTail checks that the memlog keeps up to the configured number of bytes, and always the
// newest entry, even after a compaction. Its array does not grow with the log.
func TestMemlogTail(t *testing.T) {
	l := memlog{tailMax: 10}
	l.reset(position{})
	for i := range uint64(1000) {
		l.append([]*raftpb.Entry{entry(i+1, 1, "more than ten bytes are in memory")}, &frame{}, nil)
		if l.tailFirst != i+1 || len(l.tail) != 1 {
			t.Fatalf("entry %d: %d are in memory", i+1, len(l.tail))
		}
	}
	if cap(l.tail) > 16 {
		t.Errorf("one entry in an array of %d", cap(l.tail))
	}
	l = memlog{tailMax: 1 << 20}
	l.reset(position{})
	l.append(entries(1, 21, 1), &frame{}, nil)
	l.compact(position{5, 1})
	if l.tailFirst != 6 || len(l.tail) != 15 {
		t.Errorf("memory begins at %d after compacting 5", l.tailFirst)
	}
	l.truncate(15)
	for i, e := range l.tail[:cap(l.tail)] {
		if (e != nil) != (i < 9) {
			t.Errorf("slot %d: %v", i, e)
		}
	}
	if l.has(position{99, 0}) || !l.has(position{5, 1}) || l.has(position{5, 2}) {
		t.Error("what the log has")
	}
	if got := entrySize(&raftpb.Entry{}); got != 0 {
		t.Errorf("an empty entry is %d bytes", got)
	}
}
