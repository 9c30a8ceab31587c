package sim

import (
	"fmt"
	"iter"
	"slices"
	"testing"

	"leasehold.dev/internal/directory"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// immortal is a directory.State whose leases never end and have no keys.
type immortal struct{}

func (immortal) Keys(lease.ID) iter.Seq[string] { return slices.Values([]string(nil)) }

func (immortal) Expiry(lease.ID) (lease.Instant, bool) { return 1 << 40, true }

// newDirectory returns a leader's directory with n caches, each holding the keys of the same range.
func newDirectory(n int) *directory.Directory {
	d := directory.New(1, immortal{}, directory.Limits{})
	d.Advance(1)
	for i := range n {
		openCache(d, lease.ID(i+1))
	}
	return d
}

func openCache(d *directory.Directory, id lease.ID) {
	d.Hold(id, lease.Token(id), []keyrange.Range{{Key: "k", End: "l"}}, false)
	d.Settled(1 << 40)
	d.Open(directory.Opening{ID: id, Token: lease.Token(id), From: directory.Origin{Member: 1}})
	d.Ack(directory.Ack{ID: id, Token: lease.Token(id), Open: 1})
}

func fillCache(b *testing.B, d *directory.Directory, id lease.ID, key string) {
	fill := directory.Fill{ID: id, Token: lease.Token(id), Ranges: []keyrange.Range{{Key: key}}}
	if !d.Fill(fill) {
		b.Fatalf("cache %d may not keep %q", id, key)
	}
}

// write writes a key. All caches that hold it acknowledge the invalidation.
func write(b *testing.B, d *directory.Directory, key string) (dropped int) {
	w := &directory.Write{Touches: []keyrange.Range{{Key: key}}}
	now, err := d.Admit(w)
	if err != nil {
		b.Fatal(err)
	}
	for list := d.Invalidations(); len(list) > 0; list = d.Invalidations() {
		for _, n := range list {
			d.Ack(directory.Ack{ID: n.ID, Token: n.Token, Term: 1, Seq: n.Seq, Open: 1})
		}
		dropped += len(list)
	}
	if ready := d.Ready(); !now && len(ready) != 1 {
		b.Fatal("the write still waits")
	}
	d.Finish(w)
	d.TakeAcknowledged()
	d.TakeWaits()
	return dropped
}

// flatCaches lists operations measured with many caches.
var flatCaches = []flatRow{
	{name: "caches-of-a-range/open-and-release", make: func(_ *testing.B, n int) func(int) int {
		d := newDirectory(n)
		return func(i int) int {
			openCache(d, lease.ID(n+i+1))
			d.Release(lease.Token(n + i + 1))
			return 1
		}
	}},
	{name: "caches-of-a-range/put-one-has", make: func(b *testing.B, n int) func(int) int {
		d := newDirectory(n)
		for id := lease.ID(1); id <= lease.ID(n); id++ {
			fillCache(b, d, id, fmt.Sprintf("k/%08d", id))
		}
		return func(i int) int {
			id := lease.ID(i%n + 1)
			write(b, d, fmt.Sprintf("k/%08d", id))
			fillCache(b, d, id, fmt.Sprintf("k/%08d", id))
			return 1
		}
	}},
	{name: "caches-of-a-range/put-all-have", all: true, make: func(b *testing.B, n int) func(int) int {
		d := newDirectory(n)
		return func(int) int {
			for id := lease.ID(1); id <= lease.ID(n); id++ {
				fillCache(b, d, id, "k")
			}
			return write(b, d, "k")
		}
	}},
	{name: "holds/grant-and-expire", make: func(b *testing.B, n int) func(int) int {
		m := newFlatMachine(b)
		hold := func(id lease.ID) *lease.Info {
			return m.load(&fsm.Grant{
				Terms: lease.Terms{ID: id, TTL: 60_000, Owner: fmt.Sprint(id / 1000)},
				Holds: []keyrange.Range{{Key: "a"}},
			}).(*lease.Info)
		}
		for i := range n - 1 {
			hold(lease.ID(i + 1))
		}
		return func(i int) int {
			l := hold(lease.ID(n + i*1000))
			due := lease.Due{ID: l.ID, Token: l.Token, Stamp: l.Stamp}
			m.do(&fsm.Expire{Term: 1, Leases: []lease.Due{due}})
			return 1
		}
	}},
}
