package lease

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"
)

// sizes are numbers of leases. The cost of an operation should not depend on the number.
var sizes = []int{10_000, 1_000_000}

func eachSize(b *testing.B, f func(b *testing.B, n int)) {
	for _, n := range sizes {
		b.Run(fmt.Sprintf("leases=%d", n), func(b *testing.B) { f(b, n) })
	}
}

// filled returns a primary with n plain leases, granted evenly over half a TTL. Their IDs look like
// those a server would choose.
func filled(tb testing.TB, n int) (*Lessor, []ID) {
	r := rand.New(rand.NewPCG(1, 6))
	l := New(Config{})
	l.Promote(0)
	ids := make([]ID, n)
	for i := range ids {
		ids[i] = ID(r.Int64()) | 1
		l.Advance(Instant(i) * 30_000 / Instant(n))
		mustGrant(tb, l, Terms{ID: ids[i], TTL: 60_000})
	}
	return l, ids
}

// heapInUse returns the size of the live heap after garbage collection.
func heapInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestMemory checks that a plain lease takes little memory.
func TestMemory(t *testing.T) {
	const n, most = 100_000, 105
	before := heapInUse()
	l, ids := filled(t, n)
	got := float64(heapInUse()-before)/n - 8
	if got > most {
		t.Errorf("a lease takes %.0f bytes, more than %d", got, most)
	}
	t.Logf("%.0f bytes a lease", got)
	runtime.KeepAlive(l)
	runtime.KeepAlive(ids)
}

// BenchmarkRenew renews leases in random order while time passes, so the result includes the timing
// wheel's work.
func BenchmarkRenew(b *testing.B) {
	eachSize(b, func(b *testing.B, n int) {
		l, ids := filled(b, n)
		now := l.now
		r := rand.New(rand.NewPCG(2, 6))
		r.Shuffle(n, func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
		i := 0
		b.ReportAllocs()
		for b.Loop() {
			if i++; i%max(1, n/20_000) == 0 { // each lease is renewed every 20 s
				now++
				l.Advance(now)
			}
			if _, err := l.Renew(ids[i%n], 0); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkGrant grants a lease and revokes another.
func BenchmarkGrant(b *testing.B) {
	eachSize(b, func(b *testing.B, n int) {
		l, ids := filled(b, n)
		r := rand.New(rand.NewPCG(3, 6))
		i := 0
		b.ReportAllocs()
		for b.Loop() {
			at := r.IntN(n)
			if _, err := l.Revoke(ids[at]); err != nil {
				b.Fatal(err)
			}
			i++
			ids[at] = ID(r.Int64()) | 1
			mustGrant(b, l, Terms{ID: ids[at], TTL: 60_000})
		}
	})
}

// BenchmarkDue expires leases and grants them again one at a time, with about a thousand decisions
// per batch.
func BenchmarkDue(b *testing.B) {
	eachSize(b, func(b *testing.B, n int) {
		const batch = 1000
		l, _ := filled(b, n)
		now := l.now
		turn := func() []Due {
			now += max(1, Instant(60_000*batch/n))
			l.Advance(now)
			for silent := l.Silent(batch); len(silent) > 0; silent = l.Silent(batch) {
				l.Checkpoint(silent)
			}
			return l.Due(batch)
		}
		due := turn()
		for len(due) == 0 {
			due = turn() // until the first leases are due
		}
		b.ReportAllocs()
		for b.Loop() {
			for len(due) == 0 {
				due = turn()
			}
			d := due[0]
			due = due[1:]
			if _, ok := l.Expire(d); !ok {
				b.Fatal("not the one")
			}
			mustGrant(b, l, Terms{ID: d.ID, TTL: 60_000})
		}
	})
}

// BenchmarkLongestStep reports the longest call while a member is promoted with n leases, and while
// all of them expire at the same instant.
func BenchmarkLongestStep(b *testing.B) {
	eachSize(b, func(b *testing.B, n int) {
		var longest, calls time.Duration
		took := func(step func()) {
			begun := time.Now()
			step()
			longest = max(longest, time.Since(begun))
			calls++
		}
		l, _ := filled(b, n)
		for b.Loop() {
			longest, calls = 0, 0
			took(func() { l.Promote(l.now) })
			for l.tracker.behind() {
				took(func() { l.Advance(l.now) })
			}
		}
		b.ReportMetric(longest.Seconds()*1000, "promote-ms")
		b.ReportMetric(float64(calls), "promote-steps")
		l.cfg.SpreadRate = n
		l.Promote(l.now)
		catchUp(l, l.now)
		at := l.now + 100_000
		longest, calls = 0, 0
		for first := true; first || l.tracker.behind(); first = false {
			took(func() { l.Advance(at); l.Due(512) })
		}
		b.ReportMetric(longest.Seconds()*1000, "due-ms")
		b.ReportMetric(float64(calls), "due-steps")
	})
}

// BenchmarkAll reports the time per lease of steps that visit all leases: Recount, called when a
// clock is untrusted, and CheckpointAll, called when a primary stops. No client can cause these
// steps. All leases are checkpointed.
func BenchmarkAll(b *testing.B) {
	perLease := func(b *testing.B, n int) {
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/lease")
	}
	eachSize(b, func(b *testing.B, n int) {
		l, ids := filled(b, n)
		list := make([]Checkpoint, n)
		for i, id := range ids {
			_, token, _ := l.Standing(id)
			list[i] = Checkpoint{ID: id, Token: token, Remaining: 30_000}
		}
		l.Checkpoint(list)
		b.Run("Recount", func(b *testing.B) {
			for b.Loop() {
				l.Recount()
			}
			perLease(b, n)
		})
		b.Run("CheckpointAll", func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				l.Promote(l.now)
				catchUp(l, l.now)
				b.StartTimer()
				l.CheckpointAll()
			}
			perLease(b, n)
			if !l.MoreSilent() {
				b.Fatal("no lease is silent")
			}
		})
	})
}

// BenchmarkGroup renews a group every second. The cost does not depend on the size of the group.
func BenchmarkGroup(b *testing.B) {
	for _, n := range []int{1, 1_000_000} {
		b.Run(fmt.Sprintf("leases=%d", n), func(b *testing.B) {
			l := New(Config{})
			l.Promote(0)
			l.OpenGroup(1, 10_000)
			for id := range ID(n) {
				mustGrant(b, l, Terms{ID: id + 1, TTL: 10_000})
				if !l.Join(1, id+1, 0) {
					b.Fatal("not joined")
				}
			}
			for b.Loop() {
				l.Advance(l.now + 1000)
				if _, ok := l.RenewGroup(1); !ok {
					b.Fatal("the group is over")
				}
				if due, silent := l.Due(1), l.Silent(1); len(due)+len(silent) > 0 {
					b.Fatal("something is due")
				}
			}
		})
	}
}
