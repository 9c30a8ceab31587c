package keeper

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"leasehold.dev/internal/backup"
	"leasehold.dev/internal/backup/target"
	"leasehold.dev/test/harness"
)

// memory is an in-memory target that can be made to fail.
type memory struct {
	mu      sync.Mutex
	objects map[string][]byte
	deleted []string
	// fail is called before each call and can return an error for it.
	fail func(ctx context.Context, call, name string) error
}

func (m *memory) String() string { return "memory" }

func (m *memory) check(ctx context.Context, call, name string) error {
	m.mu.Lock()
	fail := m.fail
	m.mu.Unlock()
	if fail == nil {
		return nil
	}
	return fail(ctx, call, name)
}

func (m *memory) failing(f func(ctx context.Context, call, name string) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fail = f
}

func (m *memory) Put(ctx context.Context, c target.Content) error {
	if err := m.check(ctx, "put", c.Name); err != nil {
		return err
	}
	var b bytes.Buffer
	if err := c.Write(&b); err != nil {
		return err
	}
	if int64(b.Len()) != c.Bytes || sha256.Sum256(b.Bytes()) != c.Sum {
		return errors.New("the content does not match its size and sum")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.objects == nil {
		m.objects = make(map[string][]byte)
	}
	m.objects[c.Name] = b.Bytes()
	return nil
}

func (m *memory) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	if err := m.check(ctx, "get", name); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	b, ok := m.objects[name]
	if !ok {
		return nil, target.ErrNotFound
	}
	return io.NopCloser(bytes.NewReader(b)), nil
}

func (m *memory) List(ctx context.Context) (all []backup.Object, err error) {
	if err := m.check(ctx, "list", ""); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, b := range m.objects {
		all = append(all, backup.Object{Name: name, Bytes: int64(len(b))})
	}
	return all, nil
}

func (m *memory) Delete(ctx context.Context, name string) error {
	if err := m.check(ctx, "delete", name); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, name)
	m.deleted = append(m.deleted, name)
	return nil
}

// catalog returns the catalog of the target and its decoded pieces.
func (m *memory) catalog(t *testing.T) (backup.Catalog, []backup.Piece) {
	t.Helper()
	objects, err := m.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := backup.Catalogue(objects)
	var pieces []backup.Piece
	for _, i := range c.Pieces {
		m.mu.Lock()
		b := m.objects[i.Name]
		m.mu.Unlock()
		p, err := backup.DecodePiece(b)
		previous := backup.Place{Index: i.First - 1, Term: i.Before}
		if err != nil || p.Last() != i.Last || p.Previous != previous {
			t.Fatalf("%s: %+v, %v", i.Name, p, err)
		}
		pieces = append(pieces, p)
	}
	return c, pieces
}

// raft is the log of a cluster, and member is one member's part of it. The data of an entry is its
// index.
type raft struct {
	mu    sync.Mutex
	pad   int      // extra bytes of data
	terms []uint64 // terms[i] is the term of entry i; there is no entry 0
}

func (r *raft) write(n int, term uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for range n {
		r.terms = append(r.terms, term)
	}
}

type member struct {
	*raft
	id      uint64
	history backup.History
	leading bool
	first   uint64 // first index in the log
	kept    uint64
}

func (m *member) lead(on bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.leading = on
}

func (m *member) cut(first uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.first = first
}

func (m *member) keeps() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.kept
}

func (m *member) Leading() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.leading
}

func (m *member) Applied() (backup.Place, int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.last(), int64(1000 + len(m.terms))
}

func (m *member) last() backup.Place {
	n := len(m.terms) - 1
	return backup.Place{Index: uint64(n), Term: m.terms[n]}
}

func (m *member) TermAt(index uint64) (uint64, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if index+1 < m.first || index >= uint64(len(m.terms)) {
		return 0, false
	}
	return m.terms[index], true
}

func (m *member) Entries(first, last uint64, most int) (out []backup.Entry, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if first < m.first {
		return nil, errors.New("compacted")
	}
	size := 0
	for i := first; i <= last; i++ {
		data := fmt.Appendf(make([]byte, 0, 20+m.pad), "%d", i)
		data = append(data, make([]byte, m.pad)...)
		if size += len(data); size > most && len(out) > 0 {
			break
		}
		out = append(out, backup.Entry{Term: m.terms[i], Data: data})
	}
	return out, nil
}

func (m *member) State(context.Context) (State, error) {
	at, revision := m.Applied()
	return State{at, revision, func(_ context.Context, w io.Writer) error {
		_, err := fmt.Fprintf(w, "state at %d", at.Index)
		return err
	}}, nil
}

func (m *member) History() backup.History { return m.history }

func (m *member) Keep(index uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kept = index
}

// world is a cluster whose members back up to one target.
type world struct {
	t      *testing.T
	target *memory
	raft   *raft
	// history is the history of members started from now on.
	history backup.History
	stop    context.CancelFunc
	ctx     context.Context
	log     *harness.Log
}

// inBubble runs a test in virtual time. The log starts with entries 1 to 10 of term 1.
func inBubble(t *testing.T, test func(*testing.T, *world)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		w := &world{
			t: t, target: new(memory), raft: &raft{terms: make([]uint64, 1)},
			history: backup.History{Cluster: 7}, ctx: ctx, stop: stop, log: new(harness.Log),
		}
		w.raft.write(10, 1)
		test(t, w)
	})
}

const every = 500 * time.Millisecond

// member starts a member and waits until it is idle.
func (w *world) member(id uint64, leading bool, change ...func(*Config)) (*member, *Keeper) {
	w.t.Helper()
	schedule, err := parseSchedule("@hourly")
	if err != nil {
		w.t.Fatal(err)
	}
	m := &member{raft: w.raft, id: id, history: w.history, leading: leading, first: 1}
	c := Config{
		Source: m, Target: w.target, Schedule: schedule, Keep: 2, Every: every, Member: id,
		Logger: slog.New(slog.NewTextHandler(w.log, nil)),
	}
	for _, f := range change {
		f(&c)
	}
	k := New(c)
	go k.Run(w.ctx)
	synctest.Wait()
	return m, k
}

// pass advances time and waits until all goroutines are idle.
func (w *world) pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// checkWhole checks that the log up to an index was copied without a gap from a full backup on,
// with the right entries.
func (w *world) checkWhole(from backup.Full, to uint64) {
	w.t.Helper()
	c, pieces := w.target.catalog(w.t)
	if at, _ := c.Reach(from.Place); at.Index != to {
		w.t.Errorf("from %d the log reaches %v, want %d:\n%+v", from.Index, at, to, c.Pieces)
	}
	for _, p := range pieces {
		for i, e := range p.Entries {
			index := p.Previous.Index + 1 + uint64(i)
			if strings.TrimRight(string(e.Data), "\x00") != fmt.Sprint(index) {
				w.t.Errorf("entry %d is %.20q", index, e.Data)
			}
		}
		if p.History != w.history {
			w.t.Errorf("a piece belongs to %v", p.History)
		}
	}
}

// fulls returns the full backups.
func (w *world) fulls() []backup.Full {
	c, _ := w.target.catalog(w.t)
	return c.Fulls
}

// padded adds extra bytes to the data of entries.
func (r *raft) padded(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pad = n
}
