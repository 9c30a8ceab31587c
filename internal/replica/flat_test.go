package replica

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"leasehold.dev/internal/fsm"
)

// BenchmarkFlat measures the cost of one command, in nanoseconds, with a backlog of 1,000 and of
// 100,000 commands. The backlog is either committed all at once or waiting for a leader.
// BenchmarkFlat in test/sim covers the other operations.
func BenchmarkFlat(b *testing.B) {
	const few, many = 1_000, 100_000
	for _, c := range []struct {
		name string
		many int
		cost func(b *testing.B, n int) time.Duration
	}{
		{"backlog-of-a-member/apply", many, applyBacklog},
		{"backlog-of-a-member/wait-for-a-leader", 60_000, waitForLeader},
	} {
		b.Run(c.name, func(b *testing.B) {
			defer debug.SetGCPercent(debug.SetGCPercent(-1))
			at := [2]float64{}
			for i, n := range [...]int{few, c.many} {
				least := c.cost(b, n)
				for range 6 {
					runtime.GC()
					least = min(least, c.cost(b, n))
				}
				at[i] = float64(least.Nanoseconds()) / float64(n)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(at[0], "ns-at-1000")
			b.ReportMetric(at[1], fmt.Sprintf("ns-at-%d", c.many))
			b.ReportMetric(at[1]/at[0], "times")
		})
	}
}

// applyBacklog returns the time to apply n puts that were committed together.
func applyBacklog(b *testing.B, n int) time.Duration {
	m := lead(b)
	for i := range n {
		m.r.Propose(&Proposal{Command: &fsm.Put{Key: fmt.Sprint(i % 1000)}})
	}
	for range n/groupMax + 1 {
		m.take()
	}
	m.proposals = nil
	began := time.Now()
	m.persist()
	for len(m.proposals) < n {
		m.take()
	}
	return time.Since(began)
}

// waitForLeader returns the time to queue n puts while there is no leader.
func waitForLeader(b *testing.B, n int) time.Duration {
	m := start(b)
	puts := make([]*Proposal, n)
	for i := range puts {
		puts[i] = &Proposal{Command: &fsm.Put{Key: fmt.Sprint(i % 1000)}}
	}
	began := time.Now()
	for i, p := range puts {
		if m.r.Propose(p); i%100 == 99 {
			m.take()
		}
	}
	took := time.Since(began)
	if len(m.proposals) > 0 {
		b.Fatalf("%d answered: %v", len(m.proposals), m.proposals[0].Err)
	}
	return took
}
