package wheel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"leasehold.dev/test/tier"
)

// all makes Advance process all entries.
const all = math.MaxInt

// twin is a slow, obviously correct wheel: a sorted slice.
type twin struct {
	now  int64
	list []twinEntry // sorted by instant, then by handle
}

type twinEntry struct {
	at     int64
	handle uint32
}

func (t *twin) find(handle uint32) int {
	return slices.IndexFunc(t.list, func(e twinEntry) bool { return e.handle == handle })
}

func (t *twin) add(handle uint32, at int64) {
	t.remove(handle)
	i := 0
	for i < len(t.list) && (t.list[i].at < at || t.list[i].at == at && t.list[i].handle < handle) {
		i++
	}
	t.list = slices.Insert(t.list, i, twinEntry{at, handle})
}

func (t *twin) remove(handle uint32) bool {
	i := t.find(handle)
	if i >= 0 {
		t.list = slices.Delete(t.list, i, i+1)
	}
	return i >= 0
}

// due returns the sorted handles that Advance fires at now.
func (t *twin) due(now int64) []uint32 {
	var out []uint32
	for _, e := range t.list {
		if e.at <= now {
			out = append(out, e.handle)
		}
	}
	slices.Sort(out)
	return out
}

// checkInvariants walks the whole wheel and verifies its fields and links.
func (w *Wheel) checkInvariants() error {
	linked := 0
	for list := range uint32(lists) {
		prev := headFlag | list
		for h := w.heads[list]; h != noHandle; h = w.entry(h).next {
			e := w.entry(h)
			linked++
			if e.prev != prev {
				return fmt.Errorf("handle %d in list %d: prev is %#x, want %#x", h, list, e.prev, prev)
			}
			prev = h
			switch {
			case list == overdue:
				if e.at > w.now {
					return fmt.Errorf("handle %d at %d is overdue at %d", h, e.at, w.now)
				}
			case list == firing: // left over from an Advance that reached its limit
			default:
				if err := w.checkPlace(e.at, int(list)); err != nil {
					return fmt.Errorf("handle %d: %w", h, err)
				}
			}
		}
		if list < overdue {
			marked := w.occupied[list/slots]&(1<<(list%slots)) != 0
			if marked != (w.heads[list] != noHandle) {
				return fmt.Errorf("list %d: occupied is %v", list, marked)
			}
		}
	}
	in := 0
	for _, p := range w.pages {
		for i := range p {
			if p[i].prev != absent {
				in++
			}
		}
	}
	if linked != w.count || in != w.count {
		return fmt.Errorf("count is %d, %d linked, %d marked as in", w.count, linked, in)
	}
	if w.elapsed > w.now {
		return fmt.Errorf("elapsed %d is after now %d", w.elapsed, w.now)
	}
	return nil
}

// behind reports whether the last Advance reached its limit and may have left timers to fire.
func (w *Wheel) behind() bool { return w.elapsed != w.now || w.heads[firing] != noHandle }

func (w *Wheel) checkPlace(at int64, list int) error {
	level, slot := list/slots, list%slots
	shift := uint(level * levelBits)
	if at <= w.elapsed {
		return fmt.Errorf("at %d is not after %d", at, w.elapsed)
	}
	if above := shift + levelBits; above < 64 && at>>above != w.elapsed>>above {
		return fmt.Errorf("at %d differs from %d above level %d", at, w.elapsed, level)
	}
	if digit := int(at>>shift) & (slots - 1); digit != slot {
		return fmt.Errorf("at %d is in slot %d of level %d, want %d", at, slot, level, digit)
	}
	if now := int(w.elapsed>>shift) & (slots - 1); now >= slot {
		return fmt.Errorf("slot %d of level %d is not after %d", slot, level, now)
	}
	return nil
}

// pair applies the same operations to a wheel and its twin.
type pair struct {
	w *Wheel
	t *twin
}

func newPair(now int64) *pair { return &pair{New(now), &twin{now: now}} }

func (p *pair) add(handle uint32, at int64) {
	p.w.Add(handle, at)
	p.t.add(handle, at)
}

func (p *pair) remove(handle uint32) error {
	if got, want := p.w.Remove(handle), p.t.remove(handle); got != want {
		return fmt.Errorf("remove %d: %v, want %v", handle, got, want)
	}
	return nil
}

// advance advances the wheel and its twin to now. The wheel processes a limited number of entries
// (most). If again returns true for a fired handle, the handle is added again at the returned
// instant.
func (p *pair) advance(now int64, most int, again func(handle uint32) (int64, bool)) error {
	want, behind := p.t.due(now), p.w.behind()
	p.t.now = now
	var got []uint32
	p.w.Advance(now, most, func(h uint32) {
		got = append(got, h)
		p.t.remove(h)
		if _, in := p.w.At(h); in || p.w.Len() != len(p.t.list) {
			got = append(got, noHandle) // the handle must be removed before it fires
		}
		if at, ok := again(h); ok {
			p.add(h, at)
		}
	})
	slices.Sort(got)
	if most == all && (!behind && !slices.Equal(got, want) || p.w.behind()) {
		return fmt.Errorf("advance to %d fired %v, want %v", now, got, want)
	}
	for i, h := range got {
		if _, due := slices.BinarySearch(want, h); !due || i >= most || i > 0 && got[i-1] == h {
			return fmt.Errorf("advance to %d by %d fired %v of %v", now, most, got, want)
		}
	}
	return nil
}

// check compares the results of all queries.
func (p *pair) check(handles uint32) error {
	if err := p.w.checkInvariants(); err != nil {
		return err
	}
	if got, want := p.w.Len(), len(p.t.list); got != want {
		return fmt.Errorf("len %d, want %d", got, want)
	}
	for h := range handles {
		at, ok := p.w.At(h)
		i := p.t.find(h)
		if ok != (i >= 0) || ok && at != p.t.list[i].at {
			return fmt.Errorf("handle %d: at %d, %v", h, at, ok)
		}
	}
	next, ok := p.w.Next()
	if ok != (len(p.t.list) > 0) {
		return fmt.Errorf("next says %v with %d entries", ok, len(p.t.list))
	}
	if ok && next > max(p.t.list[0].at, p.t.now) {
		return fmt.Errorf("next is %d, after the first entry at %d", next, p.t.list[0].at)
	}
	// If no entry is due, Next must be in the future, or callers would spin.
	if ok && p.t.list[0].at > p.t.now && next <= p.t.now && !p.w.behind() {
		return fmt.Errorf("next is %d at %d, but the first entry is at %d",
			next, p.t.now, p.t.list[0].at)
	}
	return nil
}

// far returns a random distance of up to centuries, with a uniformly distributed magnitude.
func far(r *rand.Rand) int64 {
	return r.Int64N(1 << r.IntN(45))
}

// TestTwin compares the wheel with a sorted slice under random operations. Instants and steps range
// from milliseconds to centuries.
func TestTwin(t *testing.T) {
	const handles = 40
	run := func(seed uint64) error {
		r := rand.New(rand.NewPCG(seed, 1))
		now := far(r)
		p := newPair(now)
		for step := range 300 {
			h := uint32(r.IntN(handles))
			var err error
			switch r.IntN(8) {
			case 0, 1, 2, 3:
				p.add(h, now+far(r)-far(r)/8) // some are in the past
			case 4:
				err = p.remove(h)
			default:
				now += far(r)
				most := []int{all, 1 + r.IntN(9)}[r.IntN(2)]
				err = p.advance(now, most, func(uint32) (int64, bool) {
					return now + far(r) - far(r)/4, r.IntN(3) == 0
				})
			}
			if err == nil {
				err = p.check(handles)
			}
			if err != nil {
				return fmt.Errorf("seed %d, step %d: %w", seed, step, err)
			}
		}
		return nil
	}
	for seed := range tier.Seeds(60, 300) {
		if err := run(seed); err != nil {
			t.Fatal(err)
		}
	}
}

// FuzzTwin decodes two bytes per operation. The top two bits of the first byte select the operation
// and the others the handle. The second byte is the distance, as mantissa and exponent.
func FuzzTwin(f *testing.F) {
	f.Add([]byte{0x01, 0x35, 0x42, 0x88, 0xc0, 0x99})
	f.Add([]byte{0x01, 0xff, 0x02, 0xfe, 0x03, 0x00, 0xc0, 0xf7, 0x81, 0x00, 0xc0, 0xff})
	f.Fuzz(func(t *testing.T, ops []byte) {
		p := newPair(0)
		var now int64
		for len(ops) >= 2 && len(ops) <= 400 {
			h, d := uint32(ops[0]&0x3f), int64(ops[1]>>4)<<((ops[1]&15)*3)
			var err error
			switch ops[0] >> 6 {
			case 0, 1:
				p.add(h, now+d)
			case 2:
				err = p.remove(h)
			case 3:
				now += d
				most := []int{all, 1 + int(h&7)}[h>>3&1]
				err = p.advance(now, most, func(h uint32) (int64, bool) { return now + d/2, h%2 == 0 })
			}
			if err == nil {
				err = p.check(64)
			}
			if err != nil {
				t.Fatal(err)
			}
			ops = ops[2:]
		}
	})
}

// TestFollowingNext sleeps until Next, as callers do. It checks that each entry fires at its own
// instant, and that the number of wakeups is bounded.
func TestFollowingNext(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	w := New(0)
	want := map[uint32]int64{}
	for h := range uint32(500) {
		want[h] = 1 + far(r)
		w.Add(h, want[h])
	}
	looks := 0
	for {
		now, ok := w.Next()
		if !ok {
			break
		}
		looks++
		w.Advance(now, all, func(h uint32) {
			if want[h] != now {
				t.Errorf("handle %d for %d fired at %d", h, want[h], now)
			}
			delete(want, h)
		})
	}
	if len(want) != 0 {
		t.Errorf("%d did not fire", len(want))
	}
	if most := 500 * levels; looks > most {
		t.Errorf("%d looks, want at most %d: one a level and entry", looks, most)
	}
}

// TestEnds checks the smallest and largest instants and the largest handles.
func TestEnds(t *testing.T) {
	w := New(0)
	w.Add(0, math.MaxInt64)
	w.Add(1, math.MinInt64)
	w.Add(maxHandle>>16, 1)
	fired := map[uint32]bool{}
	fire := func(h uint32) { fired[h] = true }
	if at, ok := w.Next(); at != 0 || !ok {
		t.Errorf("next is %d, %v; an entry is overdue", at, ok)
	}
	w.Advance(0, all, fire)
	if len(fired) != 1 || !fired[1] {
		t.Errorf("at 0 fired %v, want 1", fired)
	}
	w.Advance(math.MaxInt64-1, all, fire)
	if len(fired) != 2 || fired[0] {
		t.Errorf("just before the end fired %v", fired)
	}
	w.Advance(math.MaxInt64, all, fire)
	if !fired[0] {
		t.Error("the last instant never fired")
	}
	if err := w.checkInvariants(); err != nil {
		t.Error(err)
	}
}

// TestChangesWhileFiring removes and moves entries of the list that is being fired.
func TestChangesWhileFiring(t *testing.T) {
	w := New(0)
	for h := range uint32(10) {
		w.Add(h, 100) // all in one list, which fires in no particular order
	}
	var got []uint32
	w.Advance(100, all, func(h uint32) {
		got = append(got, h)
		if len(got) != 1 {
			return
		}
		for o := range uint32(10) {
			switch {
			case o == h:
			case o%3 == 0:
				w.Remove(o)
			case o%3 == 1:
				w.Add(o, 200)
			}
		}
		w.Add(h, 50) // in the past, so it fires at the next Advance and not at this one
	})
	for _, h := range got[1:] {
		if h%3 != 2 {
			t.Errorf("handle %d fired though it was removed or moved", h)
		}
	}
	first := got[0]
	if at, ok := w.At(first); !ok || at != 50 {
		t.Errorf("handle %d is at %d, %v, want 50", first, at, ok)
	}
	if err := w.checkInvariants(); err != nil {
		t.Fatal(err)
	}
	got = nil
	w.Advance(100, all, func(h uint32) { got = append(got, h) })
	if !slices.Equal(got, []uint32{first}) {
		t.Errorf("the next advance fired %v, want %d", got, first)
	}
}

// TestMisuse checks that the wheel panics on misuse, such as a clock that goes backward.
func TestMisuse(t *testing.T) {
	for name, f := range map[string]func(){
		"clock goes back":  func() { New(10).Advance(9, all, func(uint32) {}) },
		"negative start":   func() { New(-1) },
		"handle too large": func() { New(0).Add(maxHandle+1, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f()
		})
	}
}

// TestSteady checks that adding, moving and firing entries does not allocate.
func TestSteady(t *testing.T) {
	w := New(0)
	now := int64(0)
	for h := range uint32(5000) {
		w.Add(h, int64(h))
	}
	allocs := testing.AllocsPerRun(100, func() {
		now += 137
		w.Remove(4000)
		w.Add(4000, now+77)
		w.Advance(now, all, func(h uint32) { w.Add(h, now+int64(h)) })
	})
	if allocs != 0 {
		t.Errorf("%v allocations a round, want none", allocs)
	}
}
