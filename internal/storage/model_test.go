package storage_test

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/storage"
	"leasehold.dev/test/crashfs"
	"leasehold.dev/test/tier"
)

const smallSegment = 32 << 10

type entryModel struct {
	term uint64
	data string
}

// model is the expected contents of a Disk. Models are never modified in place.
type model struct {
	founded    bool
	prev, term uint64 // index and term of the entry before the first entry
	entries    []entryModel
	hard       storage.HardState
	snap       uint64
	snapTerm   uint64
	chunks     []string
	peers      uint64 // incarnation of member 1
}

func (m *model) last() uint64 { return m.prev + uint64(len(m.entries)) }

func (m *model) termOf(i uint64) (uint64, bool) {
	switch {
	case i == m.prev:
		return m.term, true
	case i < m.prev || i > m.last():
		return 0, false
	}
	return m.entries[i-m.prev-1].term, true
}

func (m *model) String() string {
	return fmt.Sprintf("founded %v, entries %d to %d, hard %+v, snapshot %d/%d of %d chunks, peers %d",
		m.founded, m.prev+1, m.last(), m.hard, m.snap, m.snapTerm, len(m.chunks), m.peers)
}

// differs describes a difference between a Disk and the model, or returns "". If all is set, it
// compares entries in full. Otherwise, it compares only their terms.
func (m *model) differs(d *storage.Disk, all bool) string {
	if _, founded := d.Identity(); founded != m.founded {
		return fmt.Sprintf("founded: %v", founded)
	}
	first, _ := d.FirstIndex()
	last, _ := d.LastIndex()
	hs, _, _ := d.InitialState()
	hard := storage.HardState{Term: hs.GetTerm(), Vote: hs.GetVote(), Commit: hs.GetCommit()}
	snap, _ := d.Snapshot()
	if first != m.prev+1 || last != m.last() || hard != m.hard ||
		snap.GetMetadata().GetIndex() != m.snap || d.Peers().Incarnations[1] != m.peers {
		return fmt.Sprintf("entries %d to %d, hard %+v, snapshot %d, peers %v", first, last, hard,
			snap.GetMetadata().GetIndex(), d.Peers())
	}
	for i := m.prev; i <= last; i++ {
		want, _ := m.termOf(i)
		if got, err := d.Term(i); got != want || err != nil {
			return fmt.Sprintf("entry %d has term %d, not %d: %v", i, got, want, err)
		}
	}
	if !all {
		return ""
	}
	for at := first; at <= last; {
		entries, err := d.Entries(at, last+1, 5000)
		if err != nil {
			return fmt.Sprintf("entries from %d: %v", at, err)
		}
		for _, e := range entries {
			want := m.entries[at-first]
			if e.GetIndex() != at || e.GetTerm() != want.term || string(e.GetData()) != want.data {
				return fmt.Sprintf("entry %d is entry %d, term %d, %d bytes",
					at, e.GetIndex(), e.GetTerm(), len(e.GetData()))
			}
			at++
		}
	}
	if m.snap == 0 {
		return ""
	}
	chunks, err := readSnapshot(d)
	if err != nil || !slices.Equal(chunks, m.chunks) {
		return fmt.Sprintf("%d chunks: %v", len(chunks), err)
	}
	return ""
}

func readSnapshot(d *storage.Disk) (chunks []string, err error) {
	r, err := d.OpenSnapshot()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for {
		chunk, err := r.Next()
		if errors.Is(err, io.EOF) {
			return chunks, nil
		}
		if err != nil {
			return nil, err
		}
		chunks = append(chunks, string(chunk))
	}
}

// run is a Disk together with its allowed states, in order. The first is the newest state
// acknowledged as durable, and the last is the newest state requested.
type run struct {
	t      *testing.T
	rng    *rand.Rand
	fs     *crashfs.FS
	disk   *storage.Disk
	states []*model
	calls  int  // system calls until the next crash or fault
	fault  bool // only one call fails, and the power stays on
	left   *crashfs.FS
	trace  []string
	count  map[string]int
}

var errDead = errors.New("the power is off")

func (r *run) config() storage.Config {
	return storage.Inline(storage.Config{
		Dir: "data", FS: r.fs, SegmentBytes: smallSegment, TailBytes: int64(1 + r.rng.IntN(20000)),
	})
}

func (r *run) use(fs *crashfs.FS) {
	r.fs, r.left = fs, nil
	r.calls, r.fault = 1+r.rng.IntN(150), r.rng.IntN(8) == 0
	fs.Before = func(op crashfs.Op) error {
		if r.left != nil {
			return errDead
		}
		if op.Kind == crashfs.Read { // reads are not counted, because they matter only in Open
			return nil
		}
		if r.calls--; r.calls != 0 {
			return nil
		}
		if r.fault {
			r.count["fault"]++
			return syscall.EIO
		}
		if r.rng.IntN(4) == 0 {
			r.count["kill"]++
			r.left = fs.Clone()
		} else {
			r.count["crash"]++
			r.left = fs.Crash(r.rng)
		}
		return errDead
	}
}

func (r *run) now() *model { return r.states[len(r.states)-1] }

// call makes a change. next is the state of the model after the change.
func (r *run) call(what string, next model, durable bool, change func() error) {
	r.trace = append(r.trace, what)
	r.count[strings.Fields(what)[0]]++
	r.states = append(r.states, &next)
	err := change()
	switch {
	case err == nil && durable:
		r.states = r.states[len(r.states)-1:]
	case err == nil:
	case errors.Is(err, storage.ErrNoSpace):
		r.count["no space"]++
		r.states = r.states[:len(r.states)-1]
	default:
		if r.left == nil && !r.fault {
			r.failf("%s: %v", what, err)
		}
		r.restart()
		return
	}
	if r.left != nil { // the call did not need the failed operation
		r.restart()
		return
	}
	diff := r.now().differs(r.disk, r.rng.IntN(16) == 0)
	if r.left != nil { // the power failed before the disk was read
		r.restart()
		return
	}
	if diff != "" && !(r.fault && r.calls <= 0) {
		r.failf("after %s: %s\nwant %v", what, diff, r.now())
	}
}

// restart opens the disk as left by the crash.
func (r *run) restart() {
	left := r.left
	if left == nil { // the disk failed
		left = r.fs.Clone()
		if r.rng.IntN(2) == 0 {
			left = r.fs.Crash(r.rng)
		}
		_ = r.disk.Close()
	}
	left.Limit(0)
	for {
		r.use(left)
		disk, err := storage.Open(r.config())
		if err == nil {
			r.disk = disk
			break
		}
		if r.left == nil && !r.fault {
			r.failf("open: %v", err)
		}
		if left = r.left; left == nil {
			left = r.fs.Clone()
		}
		left.Limit(0)
	}
	diffs := ""
	for i, m := range slices.Backward(r.states) {
		diff := m.differs(r.disk, true)
		if diff == "" {
			if i == 0 {
				r.count["rolled back"]++
			}
			r.states = []*model{m}
			return
		}
		diffs += fmt.Sprintf("\n%v: %s", m, diff)
	}
	if r.left != nil || r.fault { // reading the disk after Open hit the next fault
		if r.calls <= 0 {
			r.restart()
			return
		}
	}
	r.failf("after a crash, the disk has none of the allowed states:%s", diffs)
}

func (r *run) failf(format string, args ...any) {
	r.t.Helper()
	from := max(0, len(r.trace)-40)
	r.t.Fatalf("%s\n%s", fmt.Sprintf(format, args...), strings.Join(r.trace[from:], "\n"))
}

func (r *run) text(most int) string {
	n := r.rng.IntN(most)
	return fmt.Sprint(r.rng.Uint64()) + strings.Repeat("x", n)
}

// step makes a random change.
func (r *run) step() {
	m := *r.now()
	if !m.founded {
		m.founded = true
		r.call("bootstrap", m, true, func() error {
			return r.disk.Bootstrap(storage.Identity{Cluster: 1, Member: 2, Incarnation: 3},
				&raftpb.ConfState{Voters: []uint64{2}})
		})
		return
	}
	switch n := r.rng.IntN(100); {
	case n < 60:
		r.append(m)
	case n < 68:
		if m.hard.Commit > m.snap {
			r.snapshot(m, m.snap+1+r.rng.Uint64N(m.hard.Commit-m.snap), false)
		}
	case n < 71:
		r.snapshot(m, m.last()+1+r.rng.Uint64N(20), true)
	case n < 80:
		m.peers++
		r.call("peers", m, true, func() error {
			return r.disk.SavePeers(storage.Peers{Incarnations: map[uint64]uint64{1: m.peers}})
		})
	case n < 84:
		r.call("settle", m, false, r.disk.AddEmpty)
	case n < 92:
		r.fs.Limit(0)
		if r.rng.IntN(2) == 0 {
			r.fs.Limit(r.fs.Used() + int64(r.rng.IntN(2*smallSegment)))
		}
	case n < 97:
		r.reopen(m)
	default:
		r.calls = min(r.calls, 1+r.rng.IntN(20)) // make the next crash happen soon
	}
}

func (r *run) reopen(m model) {
	r.call("close", m, true, func() error {
		if err := r.disk.Close(); err != nil {
			return err
		}
		disk, err := storage.Open(r.config())
		if err == nil {
			r.disk = disk
		}
		return err
	})
}

func (r *run) append(m model) {
	at := m.last() + 1
	if least := max(m.hard.Commit, m.prev) + 1; r.rng.IntN(5) == 0 && least < at {
		at = least + r.rng.Uint64N(at-least)
	}
	if r.rng.IntN(4) == 0 || at <= m.last() {
		m.hard.Term, m.hard.Vote = m.hard.Term+1, r.rng.Uint64N(4)
	}
	most := []int{10, 1000, 5000}[r.rng.IntN(3)]
	if r.rng.IntN(50) == 0 {
		most = 3 * smallSegment
	}
	var entries []*raftpb.Entry
	m.entries = slices.Clip(m.entries[:at-m.prev-1])
	for i := range uint64(r.rng.IntN(5)) {
		data := r.text(most)
		entries = append(entries, &raftpb.Entry{
			Index: new(at + i), Term: new(m.hard.Term), Type: new(raftpb.EntryNormal),
			Data: []byte(data),
		})
		m.entries = append(m.entries, entryModel{m.hard.Term, data})
	}
	if len(entries) == 0 {
		m.entries = r.now().entries
	}
	if m.last() > m.hard.Commit {
		m.hard.Commit += r.rng.Uint64N(m.last() - m.hard.Commit + 1)
	}
	reserved := r.rng.IntN(4) == 0
	hs := &raftpb.HardState{Term: &m.hard.Term, Vote: &m.hard.Vote, Commit: &m.hard.Commit}
	what := fmt.Sprintf("append %d at %d of at most %d bytes", len(entries), at, most)
	r.call(what, m, true, func() error {
		if reserved {
			return r.disk.AppendReserved(entries, hs)
		}
		return r.disk.Append(entries, hs)
	})
}

func (r *run) snapshot(m model, index uint64, received bool) {
	term, has := m.termOf(index)
	if !has {
		term = m.hard.Term + r.rng.Uint64N(2)
	}
	m.chunks = nil
	for range r.rng.IntN(4) {
		m.chunks = append(m.chunks, r.text(3000))
	}
	m.snap, m.snapTerm = index, term
	drop := uint64(0)
	switch {
	case received:
		m.prev, m.term, m.entries = index, term, nil
	case r.rng.IntN(2) == 0 && index > m.prev:
		drop = m.prev + 1 + r.rng.Uint64N(index-m.prev)
		m.term, _ = m.termOf(drop)
		m.entries, m.prev = m.entries[drop-m.prev:], drop
		r.count["compact"]++
	}
	if m.hard.Commit < index {
		if m.hard.Commit = index; m.hard.Term < term {
			m.hard.Term, m.hard.Vote = term, 0
		}
	}
	r.call(fmt.Sprintf("snapshot at %d, received %v, drop %d", index, received, drop), m, true, func() error {
		w, err := r.disk.NewSnapshot(storage.SnapshotMeta{
			Index: index, Term: term, ConfState: &raftpb.ConfState{Voters: []uint64{2}},
		})
		if err != nil {
			return err
		}
		defer w.Abort()
		for _, c := range m.chunks {
			if err := w.Write([]byte(c)); err != nil {
				return err
			}
		}
		return w.Commit(drop)
	})
}

func drive(t *testing.T, seed uint64, steps int, count map[string]int) {
	r := &run{
		t: t, rng: rand.New(rand.NewPCG(seed, 7)), states: []*model{{}}, count: count,
		trace: []string{fmt.Sprint("seed ", seed)},
	}
	r.use(crashfs.New())
	disk, err := storage.Open(r.config())
	if err != nil {
		if r.left == nil && !r.fault {
			t.Fatal(err)
		}
		return
	}
	r.disk = disk
	for range steps {
		r.step()
	}
}

var (
	firstSeed  = flag.Int("seed", 0, "first seed for TestModel")
	operations = flag.Int("operations", 0, "operations in TestModel; 0 for the tier's default")
)

// TestModel makes random changes with crashes, kills and faults between any two system calls, and
// checks that a Disk has all acknowledged data afterward.
func TestModel(t *testing.T) {
	runs := max(100, cmp.Or(*operations, tier.Budget(0, 3_000_000))/300)
	counts := make([]map[string]int, runtime.GOMAXPROCS(0))
	t.Run("all", func(t *testing.T) {
		for i := range counts {
			counts[i] = map[string]int{}
			t.Run("", func(t *testing.T) {
				t.Parallel()
				for run := i; run < runs; run += len(counts) {
					drive(t, uint64(*firstSeed+run), 300, counts[i])
				}
			})
		}
	})
	total := map[string]int{}
	for _, count := range counts {
		for what, n := range count {
			total[what] += n
		}
	}
	t.Log(total)
	for _, what := range []string{
		"crash", "kill", "fault", "no space", "rolled back", "compact", "snapshot", "settle",
	} {
		if total[what] < 20 {
			t.Errorf("only %d of %q", total[what], what)
		}
	}
}
