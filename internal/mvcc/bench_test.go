package mvcc

import (
	"fmt"
	"math/rand"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"
)

var benchSizes = []int{10_000, 1_000_000}

var benchValue = make([]byte, 128)

// benchKeys are 32 bytes each and in no order.
func benchKeys(n int) []string {
	r := rand.New(rand.NewSource(1))
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("/service/%04d/lock-%013d", r.Intn(1000), i)
	}
	r.Shuffle(n, func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	return keys
}

func put(s *Store, key string, value []byte) {
	tx := s.Begin()
	tx.Put(key, value, 1)
	tx.End()
}

func filled(keys []string) *Store {
	s := New()
	for _, k := range keys {
		put(s, k, benchValue)
	}
	return s
}

// sweep leaves nothing to be cleaned of what went before.
func sweep(s *Store) {
	if err := s.Compact(s.Revision()); err != nil {
		panic(err)
	}
	for s.Scrub(1 << 20) {
	}
}

// forget compacts from time to time, so that a benchmark measures a steady state.
func forget(s *Store, i int) {
	if i%10_000 == 9_999 {
		if err := s.Compact(s.Revision()); err != nil {
			panic(err)
		}
	}
	if i%1000 == 0 {
		s.Scrub(5000)
	}
}

func BenchmarkStore(b *testing.B) {
	for _, n := range benchSizes {
		keys := benchKeys(n)
		s := filled(keys)
		r := rand.New(rand.NewSource(2))
		key := func() string { return keys[r.Intn(n)] }
		run := func(name string, fn func(b *testing.B)) {
			b.Run(fmt.Sprintf("%s/keys=%d", name, n), func(b *testing.B) {
				b.ReportAllocs()
				fn(b)
			})
		}
		run("Put", func(b *testing.B) {
			for b.Loop() {
				put(s, key(), benchValue)
			}
		})
		run("PutAndView", func(b *testing.B) {
			for b.Loop() {
				put(s, key(), benchValue)
				s.View()
			}
		})
		run("PutViewScrub", func(b *testing.B) {
			sweep(s)
			for i := 0; b.Loop(); i++ {
				put(s, key(), benchValue)
				s.View()
				forget(s, i)
			}
		})
		benchCreate(run, s)
		benchReads(run, s, key)
	}
}

// benchCreate makes and deletes keys, which changes the trees.
func benchCreate(run func(string, func(*testing.B)), s *Store) {
	n := 0
	for _, batch := range []int{1, 64} {
		run(fmt.Sprintf("CreateDeleteView/batch=%d", batch), func(b *testing.B) {
			sweep(s)
			for b.Loop() {
				n++
				k := fmt.Sprintf("/service/%04d/new-%d", n%1000, n)
				put(s, k, benchValue)
				if n%batch == 0 {
					s.View()
				}
				tx := s.Begin()
				tx.deleteKeys([]string{k})
				tx.End()
				if n%batch == 0 {
					s.View()
				}
				forget(s, n)
			}
		})
	}
}

func benchReads(run func(string, func(*testing.B)), s *Store, key func() string) {
	v := s.View()
	run("StoreGet", func(b *testing.B) {
		for b.Loop() {
			s.Get(key())
		}
	})
	run("ViewGet", func(b *testing.B) {
		for b.Loop() {
			v.Get(key())
		}
	})
	run("Range100", func(b *testing.B) {
		for b.Loop() {
			if _, err := v.Range(key(), "\x00", RangeOptions{Limit: 100}); err != nil {
				b.Fatal(err)
			}
		}
	})
	old := RangeOptions{Limit: 100, Revision: max(v.Compacted(), v.Revision()-1000)}
	run("Range100Past", func(b *testing.B) {
		for b.Loop() {
			// Not to the end of all: the count of the past is made by going there.
			if _, err := v.Range("/service/0500", "/service/0501", old); err != nil {
				b.Fatal(err)
			}
		}
	})
	run("Count", func(b *testing.B) {
		for b.Loop() {
			if _, err := v.Range(key(), "\x00", RangeOptions{CountOnly: true}); err != nil {
				b.Fatal(err)
			}
		}
	})
	run("Events1000", func(b *testing.B) {
		from := max(v.Compacted(), v.Revision()-5000)
		for b.Loop() {
			if _, _, err := v.Events(from, 1000); err != nil {
				b.Fatal(err)
			}
		}
	})
	run("EventsInOneKey", func(b *testing.B) {
		from := max(v.Compacted(), v.Revision()-5000)
		for b.Loop() {
			if _, _, err := v.EventsIn(key(), "", from, 1000); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkHotKey has 100,000 versions of one key.
func BenchmarkHotKey(b *testing.B) {
	s := New()
	for range 100_000 {
		put(s, "hot", benchValue)
	}
	v := s.View()
	b.Run("Latest", func(b *testing.B) {
		for b.Loop() {
			v.Get("hot")
		}
	})
	b.Run("Past", func(b *testing.B) {
		for b.Loop() {
			if _, err := v.Range("hot", "", RangeOptions{Revision: 50_000}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Put", func(b *testing.B) {
		for b.Loop() {
			put(s, "hot", benchValue)
		}
	})
}

func BenchmarkScrub(b *testing.B) {
	const n, changes = 1_000_000, 100_000
	keys := benchKeys(n)
	s := filled(keys)
	r := rand.New(rand.NewSource(3))
	sweep(s)
	for b.Loop() {
		b.StopTimer()
		for range changes {
			put(s, keys[r.Intn(n)], benchValue)
		}
		if err := s.Compact(s.Revision()); err != nil {
			b.Fatal(err)
		}
		s.View()
		b.StartTimer()
		for s.Scrub(1000) {
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/changes, "ns/record")
}

// BenchmarkClearDeleted clears keys that were deleted before a compaction, as many at a time as a
// member does in a step, and tells how long the longest part took.
func BenchmarkClearDeleted(b *testing.B) {
	const part = 16_384
	for _, n := range []int{1_000, 100_000, 1_000_000} {
		keys := benchKeys(n)
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			longest := time.Duration(0)
			for b.Loop() {
				b.StopTimer()
				s := filled(keys)
				tx := s.Begin()
				tx.DeleteRange("", "\x00")
				tx.End()
				put(s, "last", benchValue)
				if err := s.Compact(s.Revision()); err != nil {
					b.Fatal(err)
				}
				s.View()
				runtime.GC()
				b.StartTimer()
				for more := true; more; {
					began := time.Now()
					more = s.ClearDeleted(part)
					s.View()
					longest = max(longest, time.Since(began))
				}
				if s.Deleted() != 0 {
					b.Fatal(s.Deleted(), "keys are left")
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/key")
			b.ReportMetric(float64(longest.Microseconds())/1000, "longest-ms")
		})
	}
}

// BenchmarkMillion measures what is done once with a million keys, and what they take.
func BenchmarkMillion(b *testing.B) {
	const n = 1_000_000
	keys := benchKeys(n)
	heap := func() float64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	b.Run("Memory", func(b *testing.B) {
		for b.Loop() {
			before := heap()
			s := New()
			for _, k := range keys {
				put(s, k, nil)
			}
			b.ReportMetric((heap()-before)/n, "B/key")
			b.ReportMetric(float64(s.Size())/n, "Size/key")
			runtime.KeepAlive(s)
		}
	})
	v := filled(keys).View()
	records := slices.Collect(v.Records())
	b.Run("Restore", func(b *testing.B) {
		for b.Loop() {
			if _, err := Restore(v.Revision(), 0, slices.Values(records)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Records", func(b *testing.B) {
		for b.Loop() {
			for range v.Records() {
			}
		}
	})
	b.Run("Hash", func(b *testing.B) {
		for b.Loop() {
			if _, _, err := v.Hash(0); err != nil {
				b.Fatal(err)
			}
		}
	})
}
