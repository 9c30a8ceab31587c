package waitqueue

import (
	"fmt"
	"testing"

	"leasehold.dev/internal/api"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
)

// BenchmarkHandOver measures the work done by the hub's goroutine for a hand-over in queues of
// different lengths. The first ticket ends, and another is added at the back.
func BenchmarkHandOver(b *testing.B) {
	for _, n := range []int{10, 1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			m := newMember(1 << 16)
			entries := make([]*Entry, n)
			ask := func(i int) Ask {
				return Ask{Key: keyOf(lease.ID(i + 1)), Prefix: "l/", Permits: 1}
			}
			for i := range n {
				m.grant(b, lease.ID(i+1))
				at := m.put(b, ask(i).Key, lease.ID(i+1), "")
				entries[i], _ = m.queues.Wait(ask(i), at, &recorder{})
			}
			m.hub.Distribute()
			rev := m.view.Load().KV.Revision()
			b.ResetTimer()
			for j := range b.N {
				i := j % n
				kv := mvcc.KeyValue{Key: ask(i).Key, ModRevision: rev + 1}
				gone := api.NewEvent(&mvcc.Event{KV: &kv, Delete: true})
				m.queues.follow([]*api.Event{gone}, rev+1, false)
				entries[i].Leave()
				again := mvcc.KeyValue{
					Key: kv.Key, Lease: 1, CreateRevision: rev + 2, ModRevision: rev + 2,
				}
				rev += 2
				put := api.NewEvent(&mvcc.Event{KV: &again})
				m.queues.follow([]*api.Event{put}, rev, false)
				entries[i], _ = m.queues.Wait(ask(i), rev, &recorder{})
			}
		})
	}
}

// BenchmarkAlone measures entering and leaving an empty queue, which is the cost of an uncontended
// lock.
func BenchmarkAlone(b *testing.B) {
	m := newMember(1 << 16)
	for i := range 1000 {
		m.put(b, fmt.Sprintf("other/%d", i), 0, "")
	}
	m.grant(b, 1)
	at := m.put(b, keyOf(1), 1, "")
	ask, to := Ask{Key: keyOf(1), Prefix: "l/", Permits: 1}, &recorder{}
	b.ReportAllocs()
	for b.Loop() {
		e, _ := m.queues.Wait(ask, at, to)
		e.Leave()
	}
}
