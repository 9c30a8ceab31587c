package mvcc

import (
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"
)

// TestRestoreRefuses checks that Restore rejects records that no store can contain.
func TestRestoreRefuses(t *testing.T) {
	rec := func(key string, created, mod, version, sub int64) Record {
		return Record{
			KeyValue: KeyValue{
				Key: key, CreateRevision: created, ModRevision: mod, Version: version,
			},
			Sub: sub, Tombstone: version == 0,
		}
	}
	sound := func() []Record {
		return []Record{
			rec("a", 2, 3, 2, 0), // before the compaction at 5
			rec("b", 4, 5, 3, 0),
			rec("c", 0, 5, 0, 1),
			rec("a", 2, 6, 3, 0),
			rec("d", 6, 6, 1, 1),
			rec("a", 0, 7, 0, 0),
			rec("a", 8, 8, 1, 0),
			rec("a", 8, 8, 2, 1),
		}
	}
	const revision, compacted = 9, 5
	if _, err := Restore(revision, compacted, slices.Values(sound())); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		fault func(r []Record) []Record
	}{
		{"out of order", func(r []Record) []Record { r[3], r[4] = r[4], r[3]; return r }},
		{"twice", func(r []Record) []Record { return slices.Insert(r, 1, r[0]) }},
		{"of the future", func(r []Record) []Record { return append(r, rec("x", 10, 10, 1, 0)) }},
		{"revision 0", func(r []Record) []Record { return slices.Insert(r, 0, rec("x", 0, 0, 1, 0)) }},
		{"sub negative", func(r []Record) []Record { r[0].Sub = -1; return r }},
		{"sub too large", func(r []Record) []Record { r[0].Sub = 1 << 31; return r }},
		{"version negative", func(r []Record) []Record { r[0].Version = -1; return r }},
		{"version jumps", func(r []Record) []Record { r[3].Version++; return r }},
		{"created differs", func(r []Record) []Record { r[3].CreateRevision++; return r }},
		{"created later", func(r []Record) []Record { r[0].CreateRevision = 4; return r }},
		{"first but not created", func(r []Record) []Record { r[0].Version = 1; return r }},
		{"new with an old version", func(r []Record) []Record { r[4].Version = 2; return r }},
		{"new but created before", func(r []Record) []Record { r[4].CreateRevision = 4; return r }},
		{"again with an old version", func(r []Record) []Record { r[6].Version = 4; return r }},
		{"deleted with a value", func(r []Record) []Record { r[5].Value = []byte("x"); return r }},
		{"deleted but created", func(r []Record) []Record { r[5].CreateRevision = 2; return r }},
		{"deleted but not said", func(r []Record) []Record { r[5].Tombstone = false; return r }},
		{"put but said deleted", func(r []Record) []Record { r[0].Tombstone = true; return r }},
		{"deleted, never put", func(r []Record) []Record { r[5].Key = "x"; return r[:6] }},
		{"deleted twice", func(r []Record) []Record {
			return append(r, rec("c", 0, 9, 0, 0))
		}},
		{"deleted before the compaction", func(r []Record) []Record {
			return slices.Insert(r, 1, rec("x", 0, 4, 0, 0))
		}},
		{"replaced before the compaction", func(r []Record) []Record {
			return slices.Insert(r, 1, rec("a", 2, 4, 3, 0))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Restore(revision, compacted, slices.Values(c.fault(sound())))
			if err == nil || !strings.HasPrefix(err.Error(), "mvcc: restore: ") {
				t.Fatalf("error %v", err)
			}
		})
	}
	for _, c := range [][2]int64{{0, 0}, {-1, 0}, {5, 6}, {5, -1}} {
		if _, err := Restore(c[0], c[1], slices.Values([]Record(nil))); err == nil {
			t.Errorf("revision %d, compacted %d: no error", c[0], c[1])
		}
	}
}

// FuzzRestore checks that Restore either rejects arbitrary records or creates a consistent store
// with the same records.
func FuzzRestore(f *testing.F) {
	f.Add(int64(9), int64(3), []byte{1, 2, 2, 1, 0, 1, 2, 3, 2, 0, 2, 4, 4, 1, 1})
	f.Add(int64(9), int64(0), []byte{1, 2, 2, 1, 0, 1, 0, 3, 0, 0})
	f.Fuzz(func(t *testing.T, revision, compacted int64, data []byte) {
		var recs []Record
		for len(data) >= 5 {
			recs = append(recs, Record{
				KeyValue: KeyValue{
					Key: string(data[:1]), CreateRevision: int64(data[1]),
					ModRevision: int64(data[2]), Version: int64(data[3]),
				},
				Sub: int64(data[4]), Tombstone: data[3] == 0,
			})
			data = data[5:]
		}
		s, err := Restore(revision, compacted, slices.Values(recs))
		if err != nil {
			return
		}
		checkStore(t, s)
		if got := slices.Collect(s.View().Records()); !slices.EqualFunc(got, recs, sameRecord) {
			t.Fatalf("%v\nwant %v", got, recs)
		}
	})
}

func churn(s *Store, r *rand.Rand, n int) {
	for i := range n {
		tx := s.Begin()
		for range 1 + r.Intn(3) {
			key := fmt.Sprintf("key-%d", r.Intn(60))
			if r.Intn(4) == 0 {
				tx.DeleteRange(key, "")
			} else {
				tx.Put(key, fmt.Append(nil, i), int64(r.Intn(3)))
			}
		}
		tx.End()
	}
}

// TestHashEquality checks that stores with the same history have the same hash at every revision
// (S3), however much history each store has scrubbed. A restored store has the same hash as well.
func TestHashEquality(t *testing.T) {
	var stores []*Store
	budgets := []int{0, 7, 1 << 30}
	for range budgets {
		stores = append(stores, New())
	}
	for round := range 20 {
		compact := int64(0)
		for i, s := range stores {
			churn(s, rand.New(rand.NewSource(int64(round))), 100)
			if compact == 0 {
				compact = s.Compacted() + (s.Revision()-s.Compacted())*2/3
			}
			if round%2 == 1 {
				must(t, s.Compact(compact))
			}
			if budgets[i] > 0 {
				s.Scrub(budgets[i])
			}
		}
		v := stores[0].View()
		restored, err := Restore(v.Revision(), v.Compacted(), v.Records())
		must(t, err)
		others := append(slices.Clone(stores[1:]), restored)
		for rev := v.Compacted(); rev <= v.Revision(); rev += 13 {
			want, _, err := v.Hash(rev)
			must(t, err)
			for i, s := range others {
				got, c, err := s.View().Hash(rev)
				if err != nil || got != want || c != v.Compacted() {
					t.Fatalf("round %d, store %d: hash at %d is %x (%v), want %x",
						round, i+1, rev, got, err, want)
				}
			}
		}
	}
	if a, b := stores[0].records(), stores[2].records(); a <= b*2 {
		t.Fatalf("%d records unscrubbed, %d scrubbed: the test proves nothing", a, b)
	}
}

// TestHashDiffers checks that the hash covers every field.
func TestHashDiffers(t *testing.T) {
	base := []Record{
		{KeyValue: KeyValue{"a", []byte("1"), 1, 2, 3, 2, nil}, Sub: 0},
		{KeyValue: KeyValue{"b", []byte("2"), 1, 2, 3, 2, nil}, Sub: 1},
	}
	hashes := make(map[uint32]string)
	for name, change := range map[string]func(r *Record){
		"base":     func(*Record) {},
		"key":      func(r *Record) { r.Key = "c" },
		"value":    func(r *Record) { r.Value = []byte("3") },
		"boundary": func(r *Record) { r.Key, r.Value = "b2", nil },
		"lease":    func(r *Record) { r.Lease = 2 },
		"created":  func(r *Record) { r.CreateRevision = 1 },
		"modified": func(r *Record) { r.ModRevision = 4 },
		"version":  func(r *Record) { r.Version = 3 },
		"sub":      func(r *Record) { r.Sub = 2 },
	} {
		recs := slices.Clone(base)
		change(&recs[1])
		s, err := Restore(9, 5, slices.Values(recs))
		must(t, err)
		h, _, err := s.View().Hash(0)
		must(t, err)
		if other, ok := hashes[h]; ok {
			t.Errorf("%s and %s have the same hash", name, other)
		}
		hashes[h] = name
	}
}

// TestScrubMuchAdded checks that one call of Scrub visits a bounded number of records, however many
// are added at once. All calls together visit at most twice as many records as were added.
func TestScrubMuchAdded(t *testing.T) {
	const added = 2 * mostScrub
	s := New()
	for range 6 * mostScrub {
		put(s, "key", nil)
	}
	must(t, s.Compact(s.Revision()))
	tx := s.Begin()
	for range added {
		tx.Put("key", nil, 0)
	}
	tx.End()
	left := s.records()
	for n := range 4 {
		s.Scrub(1)
		now := s.records()
		if left-now < mostScrub/2 || left-now > mostScrub {
			t.Errorf("call %d dropped %d records", n, left-now)
		}
		left = now
	}
	if s.Scrub(1); left-s.records() > 1 {
		t.Errorf("a later call dropped %d records", left-s.records())
	}
}

// TestScrub checks that Scrub frees overwritten versions in bounded steps. Size excludes these
// versions as soon as they are compacted.
func TestScrub(t *testing.T) {
	s := New()
	for i := range 20_000 {
		put(s, fmt.Sprint("key-", i%10), []byte("value"))
	}
	before := s.Size()
	must(t, s.Compact(s.Revision()))
	size := s.Size()
	if size > before/100 {
		t.Errorf("size %d of %d", size, before)
	}
	steps := 0
	for s.Scrub(500) {
		steps++
		checkStore(t, s)
	}
	if steps < 20 || steps > 100 {
		t.Errorf("%d steps of 500 for 20,000 records", steps)
	}
	if n := s.records(); n != 10 {
		t.Errorf("%d records, want 10", n)
	}
	if s.Size() != size {
		t.Errorf("size %d after scrubbing, %d before", s.Size(), size)
	}
	if n := s.log.dir.Len(); n > 3 {
		t.Errorf("%d chunks for 10 records", n)
	}
	if s.Scrub(500) {
		t.Error("Scrub has work left after it was done")
	}
}

// TestScrubKeepsUp checks that Scrub keeps up with writers even if its budget is small. Otherwise,
// memory would grow without bound.
func TestScrubKeepsUp(t *testing.T) {
	s := New()
	for i := range 20_000 {
		put(s, fmt.Sprint("key-", i%10), nil)
	}
	must(t, s.Compact(s.Revision()))
	steps := 0
	for s.Scrub(10) {
		for i := range 1000 {
			put(s, fmt.Sprint("key-", i%10), nil)
		}
		steps++
	}
	if steps > 15 {
		t.Errorf("scrubbing 20,000 records took %d steps of 1000 changes", steps)
	}
	checkStore(t, s)
}

func TestScrubLeavesNothing(t *testing.T) {
	s := New()
	for i := range 3000 {
		key := fmt.Sprint("lock-", i)
		put(s, key, nil)
		tx := s.Begin()
		tx.DeleteRange(key, "")
		tx.End()
		if i%100 == 99 {
			must(t, s.Compact(s.Revision()))
			for s.Scrub(50) {
			}
		}
	}
	put(s, "one", nil)
	must(t, s.Compact(s.Revision()))
	for s.Scrub(50) {
	}
	checkStore(t, s)
	if len(s.entries) != 1 || s.dead.Len() != 0 || s.records() != 1 || s.log.dir.Len() > 1 {
		t.Fatalf("%d entries, %d deleted keys, %d records, %d chunks",
			len(s.entries), s.dead.Len(), s.records(), s.log.dir.Len())
	}
}

// TestSortByKey checks that sortByKey sorts short keys, long keys, keys with zero bytes, and keys
// with a long common prefix.
func TestSortByKey(t *testing.T) {
	r := rand.New(rand.NewSource(5))
	for round := range 200 {
		prefix := strings.Repeat("p", r.Intn(20))
		alphabet := "\x00ab\xff"
		seen := make(map[string]bool)
		var items []item
		var order []place8
		for i := range 1 + r.Intn(100) {
			n := r.Intn(30)
			if round%2 == 0 {
				n = 20 + r.Intn(10)
			}
			key := prefix
			for range n {
				key += alphabet[r.Intn(len(alphabet)):][:1]
			}
			if seen[key] {
				key += fmt.Sprint(i)
			}
			seen[key] = true
			order = append(order, place8{i: len(items)})
			items = append(items, item{key: key})
		}
		sortByKey(items, order, 0, sortLevels)
		for i := 1; i < len(order); i++ {
			if items[order[i-1].i].key >= items[order[i].i].key {
				t.Fatalf("%q before %q", items[order[i-1].i].key, items[order[i].i].key)
			}
		}
	}
}
