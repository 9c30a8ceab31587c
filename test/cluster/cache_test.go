package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	clientv3 "go.etcd.io/etcd/client/v3"

	native "leasehold.dev/client"
	"leasehold.dev/client/cache"
	"leasehold.dev/client/store"
	"leasehold.dev/test/harness"
	"leasehold.dev/test/tier"
)

// cachedKeys is how many keys TestCaches writes and reads, and cachedPrefix is before them.
const (
	cachedKeys   = 40
	cachedPrefix = "cached/"
)

// A board is memory that the test shares with its readers, so that what one knows the other
// does at once, whatever their clocks say. Each key has a writer, which numbers what it does to
// the key, and puts the number as its value.
//
// A reader must see what it finds in acked before it begins, or something later. That there
// is no key is right only if a deletion was begun with that number or a higher one.
type board struct {
	acked   [cachedKeys]atomic.Uint64 // the last write that was acknowledged
	deletes [cachedKeys]atomic.Uint64 // the last write begun that may leave no key
	reads   atomic.Uint64             // of all readers
	fills   atomic.Uint64             // those of them that went to the cluster
	stale   atomic.Uint64             // that saw something older than they should
}

// openBoard maps the file of a board into memory.
func openBoard(path string) (*board, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	size := int(unsafe.Sizeof(board{}))
	if err := f.Truncate(int64(size)); err != nil {
		return nil, err
	}
	b, err := syscall.Mmap(int(f.Fd()), 0, size,
		syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return (*board)(unsafe.Pointer(&b[0])), nil
}

// check says what is wrong with what a reader saw of a key: its value, or that there is none.
func (b *board) check(key int, floor uint64, value string, ok bool) error {
	if !ok {
		if d := b.deletes[key].Load(); d < floor {
			return fmt.Errorf("key %d: not there, although write %d was acknowledged before, and "+
				"the last that may delete it is %d", key, floor, d)
		}
		return nil
	}
	if n, err := strconv.ParseUint(value, 10, 64); err != nil || n < floor {
		return fmt.Errorf("key %d: %q, although write %d was acknowledged before", key, value, floor)
	}
	return nil
}

// readerEnv names the variable that makes this binary a process with caches: its value is
// a reading.
const readerEnv = "LEASEHOLD_TEST_READER"

// reading is what a process with caches is told.
type reading struct {
	Endpoints []string
	Board     string
	Caches    int
	Follow    bool // bounded staleness is enough
}

// readAs reads as a process with caches is told.
func readAs(told string) error {
	var r reading
	if err := json.Unmarshal([]byte(told), &r); err != nil {
		return err
	}
	return r.read()
}

// read reads through caches for as long as the process lives, and notes on the board
// what it should not have seen.
func (r *reading) read() error {
	b, err := openBoard(r.Board)
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	for range r.Caches {
		c, err := native.New(native.Config{Endpoints: r.Endpoints})
		if err != nil {
			return err
		}
		all.Go(func() {
			if err := r.through(b, c); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		})
	}
	all.Wait()
	return nil
}

// through reads through one cache.
func (r *reading) through(b *board, c *native.Client) error {
	ctx := context.Background()
	from, err := r.open(ctx, c)
	if err != nil {
		return err
	}
	fills := uint64(0)
	for range time.Tick(2 * time.Millisecond) {
		for range 20 {
			key := rand.IntN(cachedKeys)
			floor := b.acked[key].Load()
			kv, ok, err := from.Get(ctx, keyName(key))
			if err == nil {
				b.note(key, floor, kv, ok)
			}
		}
		if rand.IntN(10) == 0 {
			b.readAll(ctx, from)
		}
		if c, ok := from.(*cache.Cache); ok {
			now := c.Stats().Fills
			b.fills.Add(now - fills)
			fills = now
		}
	}
	return nil
}

func (r *reading) open(ctx context.Context, c *native.Client) (cache.Reader, error) {
	all := store.Prefix(cachedPrefix)
	if r.Follow {
		return cache.Follow(ctx, c, []store.KeyRange{all}, cache.FollowOptions{})
	}
	return cache.Open(ctx, c, []store.KeyRange{all}, cache.Options{
		TTL: 2 * time.Second, Owner: fmt.Sprint(os.Getpid()),
	})
}

// readAll reads all keys as a range.
func (b *board) readAll(ctx context.Context, from cache.Reader) {
	var floors [cachedKeys]uint64
	for i := range floors {
		floors[i] = b.acked[i].Load()
	}
	res, err := from.Range(ctx, cachedPrefix, store.Prefix(cachedPrefix).End)
	if err != nil {
		return
	}
	for i, floor := range floors {
		at, ok := slices.BinarySearchFunc(res.KVs, keyName(i), func(kv store.KV, key string) int {
			return strings.Compare(kv.Key, key)
		})
		kv := store.KV{}
		if ok {
			kv = res.KVs[at]
		}
		b.note(i, floor, kv, ok)
	}
}

// note counts a read.
func (b *board) note(key int, floor uint64, kv store.KV, ok bool) {
	b.reads.Add(1)
	if err := b.check(key, floor, string(kv.Value), ok); err != nil {
		b.stale.Add(1)
		fmt.Fprintln(os.Stderr, "STALE", now(), err)
	}
}

func keyName(i int) string { return fmt.Sprintf("%s%02d", cachedPrefix, i) }

// TestCaches has processes that read through coherent caches, writers that know nothing of
// them (etcd's client), and kills and stops readers and members all the time. No read sees
// anything older than what was acknowledged before it began (C1, T20).
func TestCaches(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	if *foreignFlag {
		t.Skip("the server has no caches")
	}
	n, each, lasts := 3, 2, 10*time.Second
	if *longFlag {
		n, each, lasts = 10, 5, 10*time.Minute
	}
	s := newShow(t, n, reading{Caches: each})
	rng := choices(t)
	for began := now(); now()-began < lasts; {
		f := cacheFaults[rng.IntN(len(cacheFaults))]
		f.run(s, rng)
	}
	s.end()
	reads, fills := s.board.reads.Load(), s.board.fills.Load()
	t.Logf("%d reads through %d caches, %d of them from the cluster, beside %d writes: %d stale",
		reads, n*each, fills, s.writes.Load(), s.board.stale.Load())
	if s.board.stale.Load() != 0 {
		t.Error(s.said("STALE"))
	}
	if 20*reads < 21*fills { // how often a key is read between two writes is the machine's to say
		t.Errorf("the caches kept next to nothing: %s", s.said(""))
	}
}

// TestFollowersAreStale is TestCaches with what is fed by a watch: if the test saw nothing
// stale there, it would see nothing anywhere.
func TestFollowersAreStale(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	if *foreignFlag {
		t.Skip("the server has no streams")
	}
	s := newShow(t, 1, reading{Caches: 2, Follow: true})
	harness.Eventually(t, "a follower is behind", func() error {
		if s.board.stale.Load() == 0 {
			return fmt.Errorf("none was in %d reads", s.board.reads.Load())
		}
		return nil
	})
	s.end()
}

// cacheFaults are what happens to readers and to members.
var cacheFaults = []struct {
	name string
	run  func(*show, *rand.Rand)
}{
	{"a reader is killed", func(s *show, rng *rand.Rand) {
		s.one(rng).signal(syscall.SIGKILL)
		s.wait(between(rng, 100, 1000))
	}},
	{"a reader is stopped for long", func(s *show, rng *rand.Rand) {
		r := s.one(rng)
		r.signal(syscall.SIGSTOP)
		s.wait(between(rng, 1500, 4000))
		r.signal(syscall.SIGCONT)
	}},
	{"readers are stopped for a moment", func(s *show, rng *rand.Rand) {
		a, b := s.one(rng), s.one(rng)
		a.signal(syscall.SIGSTOP)
		b.signal(syscall.SIGSTOP)
		s.wait(between(rng, 50, 500))
		b.signal(syscall.SIGCONT)
		a.signal(syscall.SIGCONT)
	}},
	{"the leader is killed", func(s *show, rng *rand.Rand) {
		s.kill(s.leader(), between(rng, 100, 1000))
	}},
	{"a member is stopped", func(s *show, rng *rand.Rand) {
		s.stop(s.members[rng.IntN(len(s.members))], between(rng, 300, 2000))
	}},
	{"nothing", func(s *show, rng *rand.Rand) { s.wait(between(rng, 500, 2000)) }},
}

// show is a cluster with writers and readers.
type show struct {
	*cluster
	board   *board
	readers []*runner
	writes  atomic.Uint64
	stopped chan struct{}
	all     sync.WaitGroup
	cancel  context.CancelFunc
}

// newShow starts all, and waits until each key was written and read.
func newShow(t *testing.T, readers int, r reading) *show {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := &show{cluster: newCluster(t, 3), stopped: make(chan struct{}), cancel: cancel}
	r.Board = filepath.Join(t.TempDir(), "board")
	var err error
	if s.board, err = openBoard(r.Board); err != nil {
		t.Fatal(err)
	}
	for _, m := range s.members {
		r.Endpoints = append(r.Endpoints, m.url)
	}
	told, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	for i := range readers {
		one := &runner{
			log: filepath.Join(t.TempDir(), fmt.Sprintf("reader%d.log", i)),
			command: func() *exec.Cmd {
				cmd := exec.Command(os.Args[0])
				cmd.Env = append(os.Environ(), readerEnv+"="+string(told))
				return cmd
			},
		}
		s.readers = append(s.readers, one)
		s.all.Go(func() { one.keep(t, s.stopped) })
	}
	for i := range cachedKeys {
		w := &cacheWriter{
			show: s, key: i, c: client(t, s.members[i%3]),
			rng: rand.New(rand.NewPCG(uint64(i), rand.Uint64())),
		}
		s.all.Go(func() { w.run(ctx) })
	}
	harness.Eventually(t, "keys are written and read", func() error {
		if reads := s.board.reads.Load(); reads < 1000 || s.writes.Load() < cachedKeys {
			return fmt.Errorf("%d reads, %d writes: %s", reads, s.writes.Load(), s.said(""))
		}
		return nil
	})
	return s
}

// end stops all but the cluster.
func (s *show) end() {
	s.cancel()
	close(s.stopped)
	s.all.Wait()
}

func (s *show) one(rng *rand.Rand) *runner { return s.readers[rng.IntN(len(s.readers))] }

// said returns what readers have said with a word in it, the first lines of each.
func (s *show) said(word string) string {
	var out []string
	for _, r := range s.readers {
		text, _ := os.ReadFile(r.log) // what is not there was not said
		n := 0
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, word) && n < 5 {
				out = append(out, line)
				n++
			}
		}
	}
	return strings.Join(out, "")
}

// cacheWriter writes one key with etcd's client, again and again. Each write has the
// condition that the writer's guard, another key, has not changed. So a write that got no
// answer is over for good once the guard was put.
type cacheWriter struct {
	*show
	key   int
	c     *clientv3.Client
	rng   *rand.Rand
	seq   uint64 // of the last write begun
	guard int64  // revision of the guard
}

func (w *cacheWriter) run(ctx context.Context) {
	for err := w.settle(ctx); ctx.Err() == nil; {
		if err == nil {
			err = w.write(ctx)
		}
		if err != nil {
			err = w.settle(ctx)
		}
		w.pause(ctx)
	}
}

// pause waits for a moment, that differs.
func (w *cacheWriter) pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(time.Duration(w.rng.IntN(500)) * time.Millisecond):
	}
}

// write does something to the key. An error says that it is not known how the key is now.
func (w *cacheWriter) write(ctx context.Context) error {
	w.seq++
	name, value := keyName(w.key), fmt.Sprint(w.seq)
	switch w.rng.IntN(8) {
	case 0:
		return w.perish(ctx, name, value)
	case 1:
		w.board.deletes[w.key].Store(w.seq)
		return w.commit(ctx, clientv3.OpDelete(name))
	case 2:
		w.board.deletes[w.key].Store(w.seq)
		return w.commit(ctx, clientv3.OpDelete(name, clientv3.WithRange(name+"x")))
	default:
		return w.commit(ctx, clientv3.OpPut(name, value))
	}
}

func (w *cacheWriter) commit(ctx context.Context, op clientv3.Op) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	same := clientv3.Compare(clientv3.ModRevision(w.guardName()), "=", w.guard)
	resp, err := w.c.Txn(ctx).If(same).Then(op).Commit()
	if err == nil && !resp.Succeeded {
		err = fmt.Errorf("the guard of key %d has changed", w.key)
	}
	if err != nil {
		return err
	}
	w.acknowledged(w.seq)
	return nil
}

func (w *cacheWriter) guardName() string { return fmt.Sprintf("guard/%02d", w.key) }

// acknowledged notes on the board that a write is done.
func (w *cacheWriter) acknowledged(seq uint64) {
	w.board.acked[w.key].Store(seq)
	w.writes.Add(1)
}

// perish puts the key on a lease that is revoked, or expires. It is not known how the key is
// then.
func (w *cacheWriter) perish(ctx context.Context, name, value string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	l, err := w.c.Grant(ctx, 1)
	if err != nil {
		return err
	}
	w.board.deletes[w.key].Store(w.seq) // from now on
	if err := w.commit(ctx, clientv3.OpPut(name, value, clientv3.WithLease(l.ID))); err != nil {
		return err
	}
	if w.rng.IntN(2) == 0 {
		if _, err := w.c.Revoke(ctx, l.ID); err != nil {
			return err
		}
	}
	return errors.New("the key goes with its lease")
}

// settle finds out how the key is, and notes it on the board: nothing older may be seen from
// then on.
func (w *cacheWriter) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	put, err := w.c.Put(ctx, w.guardName(), "")
	if err != nil {
		return err
	}
	w.guard = put.Header.Revision
	got, err := w.c.Get(ctx, keyName(w.key))
	if err != nil {
		return err
	}
	if len(got.Kvs) == 0 {
		w.seq++ // somebody's deletion
		w.board.deletes[w.key].Store(w.seq)
		w.acknowledged(w.seq)
		return nil
	}
	n, err := strconv.ParseUint(string(got.Kvs[0].Value), 10, 64)
	if err == nil {
		w.acknowledged(max(n, w.board.acked[w.key].Load()))
	}
	return err
}
