package directory

import (
	"slices"
	"testing"

	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// until is a State of leases without keys that all end at one instant.
type until lease.Instant

func (u until) Keys(lease.ID) []string { return nil }

func (u until) Expiry(lease.ID) (lease.Instant, bool) { return lease.Instant(u), true }

// A cache that never answers is named when it has kept a write waiting until its end.
func TestDeadCacheIsNamed(t *testing.T) {
	d := New(1, until(500), Limits{})
	d.Advance(100)
	d.Hold(7, 1, []keyrange.Range{{Key: "a"}}, true)
	w := &Write{Touches: []keyrange.Range{{Key: "a"}}}
	if now, err := d.Admit(w); now || err != nil {
		t.Fatalf("admitted %v, %v", now, err)
	}
	d.Advance(499)
	if ready := d.Ready(); len(ready) > 0 {
		t.Fatal("it has not waited")
	}
	d.Advance(500)
	if ready := d.Ready(); len(ready) != 1 || ready[0] != w {
		t.Fatalf("ready are %v", ready)
	}
	if slow := d.TakeSlow(); !slices.Equal(slow, []Slow{{ID: 7, Waited: 400}}) {
		t.Errorf("slow are %v", slow)
	}
	if s := d.Stats(); s.Outlived != 1 || s.Slow != 1 {
		t.Errorf("counted %+v", s)
	}
}

// A cache that keeps writes waiting is told of while it does, once, until it has caught up;
// not before it is late, nor if nobody waits for it.
func TestSlowCacheIsTold(t *testing.T) {
	d := New(1, until(9_000), Limits{})
	d.Advance(100)
	d.Hold(7, 1, []keyrange.Range{{Key: "a"}, {Key: "b"}, {Key: "c"}}, true)
	d.Open(Opening{ID: 7, Token: 1, From: Origin{Member: 1}})
	write := func(key string) *Write {
		w := &Write{Touches: []keyrange.Range{{Key: key}}}
		if now, err := d.Admit(w); now || err != nil {
			t.Fatalf("admitted %v, %v", now, err)
		}
		d.Invalidations()
		return w
	}
	tells := func(when string, want ...Slow) {
		t.Helper()
		if got := d.TakeSlow(); !slices.Equal(got, want) {
			t.Errorf("%s: told of %v, want %v", when, got, want)
		}
	}
	write("a")
	if at, ok := d.Next(); !ok || at != 1100 {
		t.Errorf("next is %d, %v", at, ok)
	}
	d.Advance(1099)
	tells("in time")
	d.Advance(1100)
	tells("late", Slow{ID: 7, Waited: 1000, Still: true})
	if at, ok := d.Next(); !ok || at != 9000 {
		t.Errorf("next is %d, %v", at, ok)
	}
	write("b")
	d.Advance(3000)
	tells("later still")
	d.Ack(Ack{ID: 7, Token: 1, Term: 1, Seq: 1})
	tells("the first is acknowledged", Slow{ID: 7, Waited: 2900})
	d.Advance(3500)
	tells("it is late with the second as before")
	d.Ack(Ack{ID: 7, Token: 1, Term: 1, Seq: 2})
	tells("the second is acknowledged", Slow{ID: 7, Waited: 2400})
	w := write("c")
	d.Advance(4499)
	tells("late no more")
	d.Finish(w)
	d.Advance(4600)
	tells("nobody waits")
	write("c")
	d.Advance(4700)
	tells("late anew", Slow{ID: 7, Waited: 1200, Still: true})
	if n := d.Stats().Slow; n != 2 {
		t.Errorf("counted %d", n)
	}
}
