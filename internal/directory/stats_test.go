package directory

import (
	"fmt"
	"iter"
	"slices"
	"testing"

	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// until is a State in which no lease has keys and all leases expire at the same instant.
type until lease.Instant

func (u until) Keys(lease.ID) iter.Seq[string] { return slices.Values([]string(nil)) }

func (u until) Expiry(lease.ID) (lease.Instant, bool) { return lease.Instant(u), true }

// TestSlowCache checks when a cache is reported as slow. It becomes slow when it is late to
// acknowledge an invalidation that a write waits for, and stays slow until it has caught up or its
// lease ends.
func TestSlowCache(t *testing.T) {
	d := New(1, until(9_000), Limits{})
	d.Advance(100)
	d.Hold(7, 3, []keyrange.Range{{Key: "a"}, {Key: "b"}, {Key: "c"}}, true)
	d.Open(Opening{ID: 7, Token: 3, From: Origin{Member: 1}})
	write := func(key string) *Write {
		w := &Write{Touches: []keyrange.Range{{Key: key}}}
		if now, err := d.Admit(w); now || err != nil {
			t.Fatalf("admitted %v, %v", now, err)
		}
		d.Invalidations()
		return w
	}
	wantSlow := func(when string, want ...Slow) {
		t.Helper()
		mustBeSound(d)
		if got := d.TakeSlow(); !slices.Equal(got, want) {
			t.Errorf("%s: told of %v, want %v", when, got, want)
		}
	}
	late := func(when string, since lease.Instant, news bool) {
		t.Helper()
		var want []Slow
		if since != 0 {
			want = []Slow{{7, 3, lease.TTL(d.now - since)}}
		}
		if d.AnyLate() != (since != 0) || d.LateChanged() != news {
			t.Errorf("%s: %v, news %v", when, d.AnyLate(), d.LateChanged())
		}
		if got, n := d.Late(); !slices.Equal(got, want) || n != news {
			t.Errorf("%s: late are %v, want %v; news %v, want %v", when, got, want, n, news)
		}
	}
	write("a")
	d.Ack(Ack{ID: 7, Token: 3, Term: 1, Seq: 1})
	wantSlow("it has answered in time")
	write("a")
	if at, ok := d.Next(); !ok || at != 1100 {
		t.Errorf("next is %d, %v", at, ok)
	}
	d.Advance(1099)
	late("in time", 0, false)
	d.Advance(1100)
	late("late", 100, true)
	late("the same", 100, false)
	if at, ok := d.Next(); !ok || at != 9000 {
		t.Errorf("next is %d, %v", at, ok)
	}
	write("b")
	d.Advance(3000)
	late("later still", 100, false)
	wantSlow("it has not answered")
	d.Ack(Ack{ID: 7, Token: 3, Term: 1, Seq: 2})
	wantSlow("the first is acknowledged", Slow{7, 3, 2900})
	late("with the second", 1100, false)
	d.Advance(3500)
	d.Ack(Ack{ID: 7, Token: 3, Term: 1, Seq: 3})
	wantSlow("the second is acknowledged", Slow{7, 3, 2400})
	late("it has caught up", 0, true)
	w := write("c")
	d.Advance(4499)
	late("late no more", 0, false)
	d.Finish(w)
	d.Advance(4600)
	late("nobody waits", 0, false)
	write("c")
	d.Advance(4700)
	late("late anew", 3500, true)
	if n := d.Stats().Slow; n != 2 {
		t.Errorf("counted %d", n)
	}
	write("a")
	d.Advance(5000)
	d.Ack(Ack{ID: 7, Token: 3, Term: 1, Seq: 4})
	wantSlow("one of two is acknowledged", Slow{7, 3, 1500})
	late("with the other it is in time", 0, true)
	d.Advance(5700)
	late("and now it is not", 4700, true)
	d.Advance(9000)
	wantSlow("its lease is over", Slow{7, 3, 4300})
	late("its lease is over", 0, true)
	if now, err := d.Admit(&Write{Touches: []keyrange.Range{{Key: "b"}}}); !now || err != nil {
		t.Errorf("a write waits for what is over: %v", err)
	}
	d.Advance(12_000)
	late("nobody waits for what is over", 0, false)
}

// TestSlowCachesEnd checks that a cache no longer counts as slow when its lease ends or gets
// another holder. If many caches are slow, the slowest ones are listed, and all are counted.
func TestSlowCachesEnd(t *testing.T) {
	d := New(1, until(9_000), Limits{})
	const all = lateKept + 10
	key := []keyrange.Range{{Key: "a"}}
	d.Hold(all, all, []keyrange.Range{{Key: "b"}}, true)
	for id := range lease.ID(all - 1) {
		d.Hold(id+1, lease.Token(id+1), key, true)
	}
	for now, key := range []string{"b", "a"} {
		d.Advance(lease.Instant(now))
		w := &Write{Touches: []keyrange.Range{{Key: key}}}
		if now, err := d.Admit(w); now || err != nil {
			t.Fatalf("admitted %v, %v", now, err)
		}
	}
	named := func(when string, ids ...lease.ID) {
		t.Helper()
		list, news := d.Late()
		for i, id := range ids {
			if list[i].ID != id {
				t.Errorf("%s: late is %d, want %d", when, list[i].ID, id)
			}
		}
		if len(list) != lateKept || !news {
			t.Errorf("%s: %d are late, news %v", when, len(list), news)
		}
	}
	d.Advance(1001)
	named("all", all, 1, 2, 3)
	d.Release(1)
	d.Release(3)
	named("two have ended", all, 2, 4)
	d.Advance(9000)
	if list, news := d.Late(); len(list) > 0 || !news || d.AnyLate() {
		t.Errorf("late are %v, news %v", list, news)
	}
	if n, s := len(d.TakeSlow()), d.Stats(); n != all-2 || s.Slow != all-2 || s.Outlived != all-2 {
		t.Errorf("%d are named that were slow; %+v", n, s)
	}
}

// lives is a State in which no lease has keys and all leases expire at the same, changeable
// instant.
type lives struct {
	at   lease.Instant
	gone bool // set if the leases no longer exist
}

func (l *lives) Keys(lease.ID) iter.Seq[string] { return slices.Values([]string(nil)) }

func (l *lives) Expiry(lease.ID) (lease.Instant, bool) { return l.at, !l.gone }

// TestEndIsKnownLater (T10) covers a write that waits for a cache while the clock cannot be
// trusted. It waits until the lease's new expiry, which is set only once the clock is trusted
// again.
func TestEndIsKnownLater(t *testing.T) {
	state := &lives{at: 5000}
	d := New(1, state, Limits{})
	key := []keyrange.Range{{Key: "a"}}
	d.Hold(1, 1, key, true)
	w := &Write{Touches: key}
	if now, err := d.Admit(w); now || err != nil {
		t.Fatalf("admitted %v, %v", now, err)
	}
	d.Advance(1000)
	state.at = never
	d.Advance(5000)
	if at, ok := d.Next(); ok || d.HasReady() {
		t.Errorf("next is %d", at)
	}
	state.at = 7000
	d.Recheck()
	if at, ok := d.Next(); !ok || at != 7000 {
		t.Errorf("next is %d, %v", at, ok)
	}
	d.Advance(7000)
	if ready := d.Ready(); len(ready) != 1 {
		t.Error("the write waits for ever")
	}
}

// TestWindowOpens checks that if a cache has more ranges pending than fit into the resend window,
// the later ranges are sent as soon as it acknowledges the earlier ones.
func TestWindowOpens(t *testing.T) {
	d := New(1, until(90_000), Limits{})
	d.Hold(1, 1, []keyrange.Range{keyrange.All}, true)
	d.Open(Opening{ID: 1, Token: 1, From: Origin{Member: 1}})
	write := func(key string) {
		w := &Write{Touches: []keyrange.Range{{Key: key}}}
		if now, err := d.Admit(w); now || err != nil {
			t.Fatalf("admitted %v, %v", now, err)
		}
	}
	expectDrops := func(want int) {
		t.Helper()
		n := 0
		for _, x := range d.Invalidations() {
			n += len(x.Drop)
		}
		if n != want {
			t.Errorf("told to drop %d ranges, want %d", n, want)
		}
		mustBeSound(d)
	}
	for i := range windowMost {
		write(fmt.Sprint(i))
	}
	expectDrops(windowMost)
	write("later")
	expectDrops(0)
	d.Ack(Ack{ID: 1, Token: 1, Term: 1, Seq: 1})
	expectDrops(1)
	d.Advance(lease.Instant(resendFirst) - 1)
	expectDrops(0)
	d.Advance(lease.Instant(resendFirst))
	expectDrops(1)
}
