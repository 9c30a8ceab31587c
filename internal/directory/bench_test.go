package directory

import (
	"fmt"
	"testing"

	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// BenchmarkWrite measures a write to a key held by many caches. Each cache receives an invalidation
// and acknowledges it, and the replica's work in between is included. The cost per cache does not
// depend on the number of caches.
func BenchmarkWrite(b *testing.B) {
	for _, holders := range []int{10, 100, 1000, 4000} {
		b.Run(fmt.Sprint(holders), func(b *testing.B) { benchmarkWrite(b, holders, 0) })
		b.Run(fmt.Sprintf("%d/and-as-many-silent", holders), func(b *testing.B) {
			benchmarkWrite(b, holders, holders)
		})
	}
}

// benchmarkWrite also has silent caches that do not acknowledge, for which another write is
// waiting.
func benchmarkWrite(b *testing.B, holders, silent int) {
	d := New(1, until(1<<40), Limits{})
	now := lease.Instant(1)
	d.Advance(now)
	open := func(id lease.ID, from, to string) {
		d.Hold(id, lease.Token(id), []keyrange.Range{{Key: from, End: to}}, false)
		d.Open(Opening{ID: id, Token: 1, From: Origin{Member: 1}})
		d.Ack(Ack{ID: id, Token: 1, Open: 1})
	}
	fill := func(id lease.ID, key string) {
		if !d.Fill(Fill{ID: id, Token: 1, Ranges: []keyrange.Range{{Key: key}}}) {
			b.Fatalf("cache %d may not have %q", id, key)
		}
	}
	step := func() []Invalidation {
		d.Settled(d.holds.fences.admitted + 1)
		d.Advance(now)
		d.Next()
		return d.Invalidations()
	}
	step()
	for id := range lease.ID(silent) {
		open(-1-id, "s", "t")
		fill(-1-id, "s")
	}
	for id := range lease.ID(holders) {
		open(1+id, "k", "l")
	}
	if now, _ := d.Admit(&Write{Touches: []keyrange.Range{{Key: "s"}}}); now != (silent == 0) {
		b.Fatal("nobody waits for the silent ones")
	}
	step()
	b.ReportAllocs()
	for b.Loop() {
		for id := range lease.ID(holders) {
			fill(1+id, "k")
		}
		w := &Write{Touches: []keyrange.Range{{Key: "k"}}}
		if now, err := d.Admit(w); now || err != nil {
			b.Fatal("it does not wait", err)
		}
		for _, n := range step() {
			if n.ID > 0 {
				d.Ack(Ack{ID: n.ID, Token: 1, Term: 1, Seq: n.Seq, Open: 1})
				step()
			}
		}
		if ready := d.Ready(); len(ready) != 1 || ready[0] != w {
			b.Fatal("it waits still")
		}
		d.Finish(w)
		now++
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*holders), "ns/holder")
}
