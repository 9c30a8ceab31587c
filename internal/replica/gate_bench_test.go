package replica

import (
	"fmt"
	"testing"
	"time"

	"leasehold.dev/internal/directory"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// BenchmarkPropose measures a put on one member without disk I/O, in entries of 64 commands. It
// covers four cases: no holds; holds on other keys; caches of other keys in the range; and caches
// of the written key, which acknowledge.
func BenchmarkPropose(b *testing.B) {
	b.Run("no holds", func(b *testing.B) { benchmarkPropose(b, 0, "k", false) })
	b.Run("holds elsewhere", func(b *testing.B) { benchmarkPropose(b, 1000, "k", false) })
	for _, n := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("caches=%d/not this key", n), func(b *testing.B) {
			benchmarkPropose(b, n, "c/k", false)
		})
		b.Run(fmt.Sprintf("caches=%d/this key", n), func(b *testing.B) {
			benchmarkPropose(b, n, "c/k", true)
		})
	}
}

func benchmarkPropose(b *testing.B, caches int, key string, cached bool) {
	m := lead(b)
	fill := func(id lease.ID, key string) {
		info, _ := m.m.Lessor().Lookup(id)
		f := &Fill{ID: id, Token: info.Token, Ranges: []keyrange.Range{{Key: key}}}
		if !m.r.lead.gate.fill(f, directory.Origin{Member: self}) {
			b.Fatalf("cache %d may not keep %q", id, key)
		}
	}
	for i := range caches {
		id := lease.ID(i + 1)
		m.do(&fsm.Grant{
			Terms: lease.Terms{ID: id, TTL: fsm.MaxCacheTTL},
			Holds: []keyrange.Range{{Key: "c/", End: "c0"}},
		})
		info, _ := m.m.Lessor().Lookup(id)
		m.r.OpenCache(OpenCache{ID: id, Token: info.Token})
		m.settle()
		m.r.AckCache(AckCache{ID: id, Token: info.Token, Open: m.r.term})
		fill(id, fmt.Sprint("c/other", i))
	}
	const batch = 64
	m.proposals = nil
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; n += batch {
		if cached {
			for i := range caches {
				fill(lease.ID(i+1), key)
			}
		}
		for range batch {
			m.r.Propose(&Proposal{Command: &fsm.Put{Key: key}})
		}
		m.settle()
		for i := range m.invalidations {
			t := &m.invalidations[i]
			m.r.AckCache(AckCache{ID: t.ID, Token: t.Token, Term: t.Term, Seq: t.Seq, Open: t.Term})
		}
		m.invalidations = m.invalidations[:0]
		m.settle()
		if len(m.proposals) != batch {
			b.Fatalf("%d answers to %d puts", len(m.proposals), batch)
		}
		m.proposals = m.proposals[:0]
		if m.m.View().KV.Revision()%10_000 < batch {
			if err := m.log.Compact(m.m.Index() - 1); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// BenchmarkExpireSingly expires leases whose keys are cached by one unresponsive cache. It measures
// an unrelated put in the meantime, and the step in which the cache's lease ends and all the other
// leases expire.
func BenchmarkExpireSingly(b *testing.B) {
	const leases, puts = 40_000, 2000
	var put, release time.Duration
	for range b.N {
		m := lead(b)
		m.r.cfg.MaxExpire = 512
		m.do(&fsm.Grant{
			Terms: lease.Terms{ID: 1, TTL: 60_000}, Holds: []keyrange.Range{{Key: "c/", End: "c0"}},
		})
		for i := range lease.ID(leases) {
			m.r.Propose(&Proposal{Command: &fsm.Grant{Terms: lease.Terms{ID: 2 + i, TTL: 1000}}})
			m.r.Propose(&Proposal{Command: &fsm.Put{Key: fmt.Sprint("c/", i), Lease: 2 + i}})
		}
		m.finish()
		info, _ := m.m.Lessor().Lookup(1)
		m.r.OpenCache(OpenCache{ID: 1, Token: info.Token})
		m.settle()
		all := Fill{ID: 1, Token: info.Token, Ranges: []keyrange.Range{{Key: "c/", End: "c0"}}}
		if !m.r.lead.gate.fill(&all, directory.Origin{Member: self}) {
			b.Fatal("the cache may not keep the keys")
		}
		m.pass(2000)
		began := time.Now()
		for range puts {
			m.r.Propose(&Proposal{Command: &fsm.Put{Key: "k"}})
			m.settle()
			_ = m.r.Status() // as the member's loop does
		}
		put += time.Since(began)
		m.now = 60_001
		began = time.Now()
		m.r.Advance(m.now)
		m.finish()
		release += time.Since(began)
		if n := m.m.Lessor().Len(); n != 0 {
			b.Fatalf("%d leases are left", n)
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(put.Microseconds())/float64(b.N)/puts, "us/put")
	b.ReportMetric(float64(release.Milliseconds())/float64(b.N), "ms/release")
}

// BenchmarkPutBesideExpiries expires a large number of leases at the same time, each with a cached
// key. The caches acknowledge immediately or some steps later, and every step has a put. It
// measures the longest step, the put's latency in time and in steps, and the time until the last
// lease is gone.
func BenchmarkPutBesideExpiries(b *testing.B) {
	for _, caches := range []int{8, 100} {
		for _, late := range []int{1, 50} {
			b.Run(fmt.Sprintf("caches=%d/late=%d", caches, late), func(b *testing.B) {
				benchmarkPutBesideExpiries(b, caches, late)
			})
		}
	}
}

func benchmarkPutBesideExpiries(b *testing.B, caches, late int) {
	var step, wait, end time.Duration
	steps := 0
	for range b.N {
		m := manyDue(b, 20_000, caches)
		proposed, at := make(map[*Proposal]time.Duration), make(map[*Proposal]int)
		var now time.Duration
		delivered := make([][]Invalidation, late)
		for n := 0; m.m.Lessor().Len() > caches || len(proposed) > 0; n++ {
			acks := delivered[n%late]
			began := time.Now()
			if m.m.Lessor().Len() > caches {
				p := &Proposal{Command: &fsm.Put{Key: "k"}}
				m.r.Propose(p)
				proposed[p], at[p] = now, n
			}
			for i := range acks {
				t := &acks[i]
				m.r.AckCache(AckCache{
					ID: t.ID, Token: t.Token, Term: t.Term, Seq: t.Seq, Open: t.Term,
				})
			}
			m.take()
			m.m.View()
			took := time.Since(began)
			m.persist()
			delivered[n%late], m.invalidations = m.invalidations, nil
			step, now = max(step, took), now+took
			for _, p := range m.proposals {
				wait, steps = max(wait, now-proposed[p]), max(steps, n-at[p])
				delete(proposed, p)
			}
			m.proposals = m.proposals[:0]
		}
		end += now
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(step.Microseconds())/1000, "ms/longest-step")
	b.ReportMetric(float64(wait.Microseconds())/1000, "ms/longest-wait")
	b.ReportMetric(float64(steps), "steps/longest-wait")
	b.ReportMetric(float64(end.Milliseconds())/float64(b.N), "ms/all")
}

// manyDue returns a leader with due leases, each with one key, and caches that hold all of these
// keys.
func manyDue(tb testing.TB, leases, caches int) *member {
	m := lead(tb)
	m.r.cfg.MaxExpire = 512
	held := []keyrange.Range{{Key: "c/", End: "c0"}}
	for i := range leases {
		id := lease.ID(caches + 1 + i)
		m.r.Propose(&Proposal{Command: &fsm.Grant{Terms: lease.Terms{ID: id, TTL: 1000}}})
		m.r.Propose(&Proposal{Command: &fsm.Put{Key: fmt.Sprintf("c/%08d", i), Lease: id}})
	}
	m.finish()
	for i := range caches {
		id := lease.ID(1 + i)
		m.do(&fsm.Grant{Terms: lease.Terms{ID: id, TTL: 60_000}, Holds: held})
		info, _ := m.m.Lessor().Lookup(id)
		m.r.OpenCache(OpenCache{ID: id, Token: info.Token})
		m.settle()
		m.r.AckCache(AckCache{ID: id, Token: info.Token, Open: m.r.term})
		for i := range leases {
			f := Fill{ID: id, Token: info.Token, Ranges: []keyrange.Range{
				{Key: fmt.Sprintf("c/%08d", i)},
			}}
			if !m.r.lead.gate.fill(&f, directory.Origin{Member: self}) {
				tb.Fatal("the cache may not keep the keys")
			}
		}
	}
	m.proposals = nil
	m.now += 2000
	m.r.Advance(m.now)
	return m
}
