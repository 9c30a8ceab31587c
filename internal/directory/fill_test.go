package directory

import (
	"fmt"
	"slices"
	"testing"

	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// opened returns a Directory with one open cache. The cache holds all keys from "a" up to "z" and
// has acknowledged the opening.
func opened(l Limits) *Directory {
	d := New(1, until(9_000), l)
	d.Advance(100)
	d.Hold(1, 1, []keyrange.Range{{Key: "a", End: "z"}}, false)
	d.Settled(1)
	d.Open(Opening{ID: 1, Token: 1, From: Origin{Member: 1}})
	d.Ack(Ack{ID: 1, Token: 1, Open: 1})
	return d
}

func mayFill(d *Directory, keys ...string) bool {
	f := Fill{ID: 1, Token: 1, From: Origin{Member: 1}}
	for _, k := range keys {
		f.Ranges = append(f.Ranges, keyrange.Range{Key: k})
	}
	return d.Fill(f)
}

func waits(t *testing.T, d *Directory, w *Write) *Write {
	t.Helper()
	if now, err := d.Admit(w); now || err != nil {
		t.Fatalf("admitted %v, %v", now, err)
	}
	return w
}

func touches(keys ...string) *Write {
	w := &Write{}
	for _, k := range keys {
		w.Touches = append(w.Touches, keyrange.Range{Key: k})
	}
	return w
}

// TestNoFillWhilePending (C1) checks that a cache cannot fill a range whose invalidation is
// pending, even if the write was abandoned. Otherwise, an acknowledgment for the old copy would be
// mistaken for one for the new copy.
func TestNoFillWhilePending(t *testing.T) {
	d := opened(Limits{})
	if !mayFill(d, "b") {
		t.Fatal("nothing may be cached")
	}
	w := waits(t, d, touches("b"))
	seq := d.Invalidations()[0].Seq
	d.Finish(w)
	if mayFill(d, "b") || !mayFill(d, "c") {
		t.Error("what is pending may be cached, or nothing may")
	}
	d.Ack(Ack{ID: 1, Token: 1, Term: 1, Seq: seq, Open: 1})
	if !mayFill(d, "b") {
		t.Error("what was acknowledged may not be cached")
	}
}

// TestNoFillWhileDroppingAll (C1) checks that a cache that was told to drop all its ranges cannot
// fill any until its acknowledgment has been fully processed. All waiting writes are recorded with
// the drop of the first range, no matter which range they touch.
func TestNoFillWhileDroppingAll(t *testing.T) {
	d := New(1, until(9_000), Limits{Drops: 1, Freed: 1})
	d.Advance(100)
	d.Hold(1, 1, []keyrange.Range{{Key: "a", End: "b"}, {Key: "b", End: "c"}}, false)
	d.Open(Opening{ID: 1, Token: 1, From: Origin{Member: 1}})
	if !mayFill(d, "a1", "a2") {
		t.Fatal("nothing may be cached")
	}
	waits(t, d, touches("a1"))
	waits(t, d, touches("a2"))
	sent := d.Invalidations()
	d.Ack(Ack{ID: 1, Token: 1, Term: 1, Seq: sent[0].Seq, Open: 1})
	if !mayFill(d, "a3") {
		return
	}
	waits(t, d, touches("a3"))
	if len(d.Invalidations()) == 0 {
		t.Error("it was cached, and is written without telling the cache")
	}
}

// TestDirectoryIsBounded checks the limits on spans for each cache and in total, and on pending
// invalidations. Beyond the limits, nothing more is cached, and a cache with too many pending
// invalidations is told to drop everything.
func TestDirectoryIsBounded(t *testing.T) {
	d := opened(Limits{Spans: 3, AllSpans: 4, Drops: 2})
	if !mayFill(d, "b") || !mayFill(d, "d", "f") || mayFill(d, "h") {
		t.Error("one cache has another number of parts than three")
	}
	d.Hold(2, 2, []keyrange.Range{{Key: "a", End: "z"}}, false)
	d.Settled(1)
	d.Open(Opening{ID: 2, Token: 2, From: Origin{Member: 1}})
	other := func(key string) bool {
		return d.Fill(Fill{ID: 2, Token: 2, Ranges: []keyrange.Range{{Key: key}}})
	}
	if !other("b") || other("d") {
		t.Error("all caches have another number of parts than four")
	}
	var writes []*Write
	for _, k := range []string{"b", "d", "f"} {
		writes = append(writes, waits(t, d, touches(k)))
	}
	mustBeSound(d)
	var drop []keyrange.Range
	for _, n := range d.Invalidations() {
		if n.ID == 1 {
			drop = n.Drop
		}
	}
	if fmt.Sprint(drop) != "[{a z}]" {
		t.Errorf("told to drop %v", drop)
	}
	for _, w := range writes {
		d.Finish(w)
	}
	if mayFill(d, "x") {
		t.Error("cached though all is pending")
	}
}

// TestLongDropsAreBounded checks that the keys of pending invalidations are limited in bytes, so
// that they fit into one message.
func TestLongDropsAreBounded(t *testing.T) {
	d := opened(Limits{DropBytes: 10})
	keys := []string{"bbbbb", "ccccc", "d"}
	var writes []*Write
	for i, k := range keys {
		if !mayFill(d, k) {
			t.Fatal("nothing may be cached")
		}
		writes = append(writes, waits(t, d, touches(k)))
		drop := d.Invalidations()[0].Drop
		if all := fmt.Sprint(drop) == "[{a z}]"; all != (i == 2) || !all && len(drop) != i+1 {
			t.Errorf("told to drop %v", drop)
		}
		mustBeSound(d)
	}
	d.Ack(Ack{ID: 1, Token: 1, Term: 1, Seq: 3, Open: 1})
	for _, w := range writes {
		d.Finish(w)
	}
	mustBeSound(d)
	if !mayFill(d, keys...) {
		t.Error("nothing may be cached though nothing is pending")
	}
}

// TestEndAndAttachAny checks that the end of a lease cannot be delayed forever by commands that
// attach keys to a lease that they know only by name. Later commands of this type proceed only
// after the end.
func TestEndAndAttachAny(t *testing.T) {
	d := opened(Limits{})
	attach := touches("b")
	attach.AttachesAny = true
	if now, err := d.Admit(attach); !now || err != nil {
		t.Fatalf("admitted %v, %v", now, err)
	}
	end := waits(t, d, &Write{Ends: []lease.ID{9}})
	late := touches("c")
	late.AttachesAny = true
	waits(t, d, late)
	d.Finish(attach)
	if ready := d.Ready(); len(ready) != 2 || ready[0] != end || ready[1] != late {
		t.Fatalf("ready are %v", ready)
	}
}

// TestOldReports (C1) checks that a report that a range was dropped no longer counts once the cache
// has read the range again. Only reports made in this term and after the last read count.
func TestOldReports(t *testing.T) {
	d := opened(Limits{})
	from := func(number uint64) Origin { return Origin{Member: 1, Incarnation: 7, Number: number} }
	b := []keyrange.Range{{Key: "b"}}
	fill := func(number uint64) bool {
		return d.Fill(Fill{ID: 1, Token: 1, Ranges: b, From: from(number)})
	}
	if !fill(5) {
		t.Fatal("nothing may be cached")
	}
	for _, o := range []Origin{
		from(4), {Member: 2, Incarnation: 7, Number: 9}, {Member: 1, Incarnation: 6, Number: 9},
	} {
		d.Ack(Ack{ID: 1, Token: 1, Open: 1, Dropped: b, From: o})
	}
	d.Ack(Ack{ID: 1, Token: 1, Open: 2, Dropped: b, From: from(6)})
	d.Ack(Ack{ID: 1, Token: 2, Open: 1, Dropped: b, From: from(6)})
	w := waits(t, d, touches("b"))
	seq := d.Invalidations()[0].Seq
	d.Ack(Ack{ID: 1, Token: 1, Term: 2, Seq: seq, Open: 1, From: from(7)})
	d.Ack(Ack{ID: 1, Token: 1, Term: 0, Seq: seq, Open: 1, From: from(7)})
	d.Ack(Ack{ID: 1, Token: 1, Term: 1, Seq: seq - 1, Open: 1, From: from(7)})
	if d.HasReady() {
		t.Error("an acknowledgement of another term is believed")
	}
	d.Ack(Ack{ID: 1, Token: 1, Term: 1, Seq: seq, Open: 1, From: from(7)})
	if ready := d.Ready(); len(ready) != 1 {
		t.Error("the write waits still")
	}
	d.Finish(w)
	if !fill(8) {
		t.Error("it may not be cached anew")
	}
	d.Ack(Ack{ID: 1, Token: 1, Open: 1, Dropped: b, From: from(9)})
	if now, _ := d.Admit(touches("b")); !now {
		t.Error("a write waits for what was given up")
	}
}

// TestFillIsWithin checks that a cache can fill only ranges that its lease holds, with the lease's
// current token.
func TestFillIsWithin(t *testing.T) {
	d := opened(Limits{})
	if mayFill(d, "~") || mayFill(d, "b", "~") || !mayFill(d, "b") {
		t.Error("it may have what it does not hold, or nothing")
	}
	for _, r := range []keyrange.Range{{Key: "y", End: "zz"}, {Key: "c", End: "b"}, keyrange.All} {
		if d.Fill(Fill{ID: 1, Token: 1, Ranges: []keyrange.Range{r}}) {
			t.Errorf("it may have %v", r)
		}
	}
	if d.Fill(Fill{ID: 1, Token: 2, Ranges: []keyrange.Range{{Key: "b"}}}) {
		t.Error("another holder may have it")
	}
}

// TestRenewalInTheLog (C1) checks that a lease past its expiry is not treated as ended while a
// command that renews it is in the log.
func TestRenewalInTheLog(t *testing.T) {
	d := opened(Limits{})
	if !mayFill(d, "b") {
		t.Fatal("nothing may be cached")
	}
	touch := &Write{Renews: []lease.ID{1}}
	if now, err := d.Admit(touch); !now || err != nil {
		t.Fatalf("a renewal waits: %v", err)
	}
	waits(t, d, touches("b"))
	d.Advance(9500)
	if d.HasReady() {
		t.Fatal("the write does not wait for a lease that is about to be renewed")
	}
	d.Finish(touch) // for example because the command was lost
	d.Advance(9501)
	if !d.HasReady() {
		t.Error("the write waits for a lease that is over")
	}
}

// TestRevokedBeforeOrphan (C1) covers the time between the revocation of a lease and the moment its
// hold becomes an orphan, while the cache still has its copies. A new write must wait for the
// cache, and the cache cannot fill anything more.
func TestRevokedBeforeOrphan(t *testing.T) {
	state := &lives{at: 9_000}
	d := New(1, state, Limits{})
	d.Advance(100)
	all := []keyrange.Range{{Key: "a", End: "z"}}
	d.Hold(1, 1, all, false)
	d.Settled(1)
	d.Open(Opening{ID: 1, Token: 1, From: Origin{Member: 1}})
	d.Ack(Ack{ID: 1, Token: 1, Open: 1})
	if !mayFill(d, "b") {
		t.Fatal("nothing may be cached")
	}
	state.gone = true
	if mayFill(d, "c") {
		t.Error("a cache without a lease may have more")
	}
	waits(t, d, touches("b"))
	d.Orphan(Orphan{ID: 1, Token: 1, Ranges: all, TTL: 9_000, Until: 9_000}, false)
	if d.Advance(8_999); d.HasReady() {
		t.Error("the write has left before the cache's time is over")
	}
	if d.Advance(9_000); len(d.Ready()) != 1 {
		t.Error("the write waits for ever")
	}
}

// TestDropsOfWrites checks that a write reports how many invalidations it waited for and which
// cache was the last. A write that only renews a lease counts each cache with pending invalidations
// once.
func TestDropsOfWrites(t *testing.T) {
	d := opened(Limits{})
	if !mayFill(d, "b", "c") {
		t.Fatal("nothing may be cached")
	}
	two := waits(t, d, touches("b", "c"))
	renews := waits(t, d, &Write{Renews: []lease.ID{1}})
	if count, last := two.Drops(); count != 2 || last != 0 {
		t.Errorf("it waits for %d drops, the last of %d", count, last)
	}
	d.Ack(Ack{ID: 1, Token: 1, Term: 1, Seq: d.Invalidations()[0].Seq, Open: 1})
	for w, want := range map[*Write]int{two: 2, renews: 1, touches("d"): 0} {
		if count, last := w.Drops(); count != want || last != lease.ID(min(want, 1)) {
			t.Errorf("it has waited for %d drops, want %d, the last of %d", count, want, last)
		}
	}
}

// TestRenewalWaitsForAll checks that a renewal waits until the cache has acknowledged all pending
// invalidations, not only the first.
func TestRenewalWaitsForAll(t *testing.T) {
	d := opened(Limits{})
	if !mayFill(d, "b", "c") {
		t.Fatal("nothing may be cached")
	}
	first := waits(t, d, touches("b"))
	seq := d.Invalidations()[0].Seq
	second := waits(t, d, touches("c"))
	renewal := waits(t, d, &Write{Renews: []lease.ID{1}})
	for _, want := range [][]*Write{{first}, {renewal, second}} {
		d.Ack(Ack{ID: 1, Token: 1, Term: 1, Seq: seq, Open: 1})
		if ready := d.Ready(); !slices.Equal(ready, want) {
			t.Errorf("%d writes are ready, want %d", len(ready), len(want))
		}
		for _, n := range d.Invalidations() {
			seq = n.Seq
		}
	}
}
