package storage

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
)

// A modelLog is what a Disk must hold, in the simplest form.
type modelLog struct {
	prev position
	ents []string // data of prev.index+1 and on
	term []uint64
	hard [3]uint64
}

// A modelSnap is a snapshot's position and chunks.
type modelSnap struct {
	position
	chunks []string
}

func (l modelLog) last() uint64 { return l.prev.index + uint64(len(l.ents)) }

func (l modelLog) at(i uint64) (uint64, bool) {
	switch {
	case i == l.prev.index:
		return l.prev.term, true
	case i < l.prev.index || i > l.last():
		return 0, false
	}
	return l.term[i-l.prev.index-1], true
}

// from returns a copy that holds the entries below index only.
func (l modelLog) below(index uint64) modelLog {
	n := index - l.prev.index - 1
	l.ents, l.term = slices.Clone(l.ents[:n]), slices.Clone(l.term[:n])
	return l
}

// recovered is what Open makes of this log beside this snapshot.
func (l modelLog) recovered(s modelSnap) modelLog {
	if t, ok := l.at(s.index); !ok || t != s.term {
		l.prev, l.ents, l.term = s.position, nil, nil
	}
	if s.index > l.hard[2] {
		l.hard[2] = s.index
		if s.term > l.hard[0] {
			l.hard[0], l.hard[1] = s.term, 0
		}
	}
	return l
}

// A history is every state a Disk was told to be in. Log and snapshot are durable
// independently: logs[logFloor] and snaps[snapFloor] are the newest that were
// acknowledged as durable, what comes later may be there or not.
type history struct {
	mu                  sync.Mutex
	logs                []modelLog
	snaps               []modelSnap
	logFloor, snapFloor int
}

func newHistory() *history {
	return &history{logs: []modelLog{{}}, snaps: []modelSnap{{}}}
}

func (h *history) log() modelLog   { return h.logs[len(h.logs)-1] }
func (h *history) snap() modelSnap { return h.snaps[len(h.snaps)-1] }

func (h *history) begin(l modelLog) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.logs = append(h.logs, l)
}

func (h *history) beginSnap(s modelSnap) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.snaps = append(h.snaps, s)
}

// durable says that all that began is on disk.
func (h *history) durable() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.logFloor = len(h.logs) - 1
}

func (h *history) durableSnap() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.snapFloor = len(h.snaps) - 1
}

// A window is the range of a history that a crash may leave.
type window struct{ logLo, snapLo, logHi, snapHi int }

// before and after bracket a crash: what was durable before it, and what had
// begun when it was over.
func (h *history) before() window {
	h.mu.Lock()
	defer h.mu.Unlock()
	return window{logLo: h.logFloor, snapLo: h.snapFloor}
}

func (h *history) after(w window) window {
	h.mu.Lock()
	defer h.mu.Unlock()
	w.logHi, w.snapHi = len(h.logs)-1, len(h.snaps)-1
	return w
}

// check compares a Disk that was opened after a crash with every state it may be
// in, and makes the one it is in the only one of the history.
func (h *history) check(d *Disk, w window) error {
	got, snap, err := observe(d)
	if err != nil {
		return err
	}
	for j := w.snapHi; j >= w.snapLo; j-- {
		s := h.snaps[j]
		if s.position != snap.position || !slices.Equal(s.chunks, snap.chunks) {
			continue
		}
		for i := w.logHi; i >= w.logLo; i-- {
			if want := h.logs[i].recovered(s); equalLog(want, got) {
				h.logs, h.snaps = []modelLog{got}, []modelSnap{snap}
				h.logFloor, h.snapFloor = 0, 0
				return nil
			}
		}
	}
	return fmt.Errorf("state is none of the possible ones:\nlog   %s\nsnap  %v\n"+
		"floor %s\ntop   %s\nsnaps %v", got, snap,
		h.logs[w.logLo], h.logs[w.logHi], h.snaps[w.snapLo:w.snapHi+1])
}

func (l modelLog) String() string {
	return fmt.Sprintf("(%d@%d..%d] hard %v terms %v", l.prev.index, l.prev.term, l.last(),
		l.hard, l.term)
}

func equalLog(a, b modelLog) bool {
	return a.prev == b.prev && a.hard == b.hard &&
		slices.Equal(a.ents, b.ents) && slices.Equal(a.term, b.term)
}

// observe reads everything through the exported methods.
func observe(d *Disk) (modelLog, modelSnap, error) {
	var l modelLog
	var s modelSnap
	first, _ := d.FirstIndex()
	last, _ := d.LastIndex()
	t, err := d.Term(first - 1)
	if err != nil {
		return l, s, err
	}
	l.prev = position{index: first - 1, term: t}
	for next := first; next <= last; {
		es, err := d.Entries(next, last+1, 200)
		if err != nil {
			return l, s, fmt.Errorf("entries [%d, %d): %w", next, last+1, err)
		}
		for _, e := range es {
			if t, err := d.Term(next); err != nil || t != e.GetTerm() || e.GetIndex() != next {
				return l, s, fmt.Errorf("entry %v, want index %d, term %d (%v)", e, next, t, err)
			}
			l.ents, l.term = append(l.ents, string(e.GetData())), append(l.term, e.GetTerm())
			next++
		}
	}
	hs, _, err := d.InitialState()
	if err != nil {
		return l, s, err
	}
	l.hard = [3]uint64{hs.GetTerm(), hs.GetVote(), hs.GetCommit()}
	info, chunks, err := readSnapshot(d)
	if errors.Is(err, errNoSnapshot) {
		return l, s, nil
	}
	s.position, s.chunks = position{index: info.Index, term: info.Term}, chunks
	return l, s, err
}

// A driver does random things to a Disk as a member would, and keeps the
// history. Every step is repeated until it succeeds or the Disk has failed.
type driver struct {
	d   *Disk
	h   *history
	rng *rand.Rand
	// full is called when a step met ErrNoSpace alone, and makes room.
	full func()
}

func (w *driver) step() error {
	switch n := w.rng.IntN(20); {
	case n < 12:
		return w.append()
	case n < 13:
		return w.vote()
	case n < 16:
		return w.snapshot()
	case n < 17:
		return w.install()
	case n < 19:
		return w.compact()
	}
	if err := w.d.Flush(); err != nil {
		return err
	}
	w.h.durable()
	return nil
}

// retry repeats f while it refuses for want of space.
func (w *driver) retry(f func() error) error {
	for range 3 {
		err := f()
		if !errors.Is(err, ErrNoSpace) || errors.Is(err, ErrFailed) {
			return err
		}
		w.full()
	}
	return errors.New("still no space after there was room")
}

func (w *driver) append() error {
	l := w.h.log()
	at := l.last() + 1
	low := max(l.hard[2], l.prev.index) + 1
	if at > low && w.rng.IntN(4) == 0 { // a new leader replaces what is not committed
		at = low + w.rng.Uint64N(at-low)
		l.hard[0]++
		l.hard[1] = 0
	}
	l = l.below(at)
	l.hard[0] = max(l.hard[0], 1)
	var es []*raftpb.Entry
	for range 1 + w.rng.IntN(5) {
		data := fmt.Sprintf("%d %d %x", at, w.rng.Uint32(), make([]byte, w.rng.IntN(400)))
		es = append(es, entry(at, l.hard[0], data))
		l.ents, l.term = append(l.ents, data), append(l.term, l.hard[0])
		at++
	}
	l.hard[2] += w.rng.Uint64N(l.last() - l.hard[2] + 1)
	sync := w.rng.IntN(3) > 0
	w.h.begin(l)
	err := w.retry(func() error {
		return w.d.Append(es, hardState(l.hard[0], l.hard[1], l.hard[2]), sync)
	})
	if err == nil && sync {
		w.h.durable()
	}
	return err
}

func (w *driver) vote() error {
	l := w.h.log()
	l.hard[0]++
	l.hard[1] = 1 + w.rng.Uint64N(3)
	w.h.begin(l)
	err := w.d.Append(nil, hardState(l.hard[0], l.hard[1], l.hard[2]), true)
	if err == nil {
		w.h.durable()
	}
	return err
}

func (w *driver) chunks() []string {
	var cs []string
	for range w.rng.IntN(4) {
		cs = append(cs, fmt.Sprintf("%d%x", w.rng.Uint64(), make([]byte, w.rng.IntN(2000))))
	}
	return cs
}

// snapshot writes one of the member's own state, somewhere at or below commit.
func (w *driver) snapshot() error {
	l, old := w.h.log(), w.h.snap()
	low := max(old.index, l.prev.index) + 1
	if l.hard[2] < low {
		return nil
	}
	s := modelSnap{chunks: w.chunks()}
	s.index = low + w.rng.Uint64N(l.hard[2]-low+1)
	s.term, _ = l.at(s.index)
	return w.take(s)
}

// install writes a snapshot as it comes from a leader that is ahead.
func (w *driver) install() error {
	l := w.h.log()
	s := modelSnap{chunks: w.chunks()}
	s.index, s.term = l.last()+1+w.rng.Uint64N(5), l.hard[0]+1
	if err := w.take(s); err != nil {
		return err
	}
	// The log was dropped durably, and everything before it in the same file.
	l = modelLog{prev: s.position, hard: l.hard}
	w.h.begin(l)
	w.h.durable()
	l.hard = [3]uint64{s.term, 0, s.index}
	w.h.begin(l)
	err := w.d.Append(nil, hardState(s.term, 0, s.index), true)
	if err == nil {
		w.h.durable()
	}
	return err
}

func (w *driver) take(s modelSnap) error {
	w.h.beginSnap(s)
	err := w.retry(func() error { return writeSnapshot(w.d, s.index, s.term, s.chunks...) })
	if err == nil {
		w.h.durableSnap()
	}
	return err
}

func (w *driver) compact() error {
	l, s := w.h.log(), w.h.snap()
	if s.index <= l.prev.index {
		return nil
	}
	p := position{index: l.prev.index + 1 + w.rng.Uint64N(s.index-l.prev.index)}
	p.term, _ = l.at(p.index)
	n := p.index - l.prev.index
	l.prev, l.ents, l.term = p, slices.Clone(l.ents[n:]), slices.Clone(l.term[n:])
	w.h.begin(l)
	return w.d.Compact(p.index)
}

// TestModel runs the driver without faults, compares after every step, and
// reopens now and then: the Disk in memory, the Disk on disk and the model agree.
func TestModel(t *testing.T) {
	seeds := uint64(4)
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		cfg := testConfig(nil)
		cfg.Dir = t.TempDir()
		h := newHistory()
		w := &driver{d: mustBootstrap(t, cfg), h: h, rng: rand.New(rand.NewPCG(seed, 1))}
		for i := range 400 {
			if err := w.step(); err != nil {
				t.Fatalf("seed %d step %d: %v", seed, i, err)
			}
			if i%40 == 39 {
				if err := w.d.Close(); err != nil {
					t.Fatal(err)
				}
				w.d = mustOpen(t, cfg)
			}
			if i%10 == 9 {
				top := window{len(h.logs) - 1, len(h.snaps) - 1, len(h.logs) - 1, len(h.snaps) - 1}
				if err := h.check(w.d, top); err != nil {
					t.Fatalf("seed %d step %d: %v", seed, i, err)
				}
			}
		}
		mustClose(t, w.d)
	}
}
