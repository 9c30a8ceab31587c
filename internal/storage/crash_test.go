package storage

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"leasehold.dev/test/crashfs"
)

var rounds = flag.Int("rounds", 1, "how many times as many crashes and faults to try")

// A crash is a file system as a power cut left it, and what may be on it.
type crash struct {
	fs     *vfs.MemFS
	window window
	op     string
}

// crashes runs a driver for some steps and returns clones of its file system as
// of random mutations, in the middle of whatever was going on.
func crashes(t *testing.T, seed uint64, steps, every int) (*history, []crash) {
	rng := rand.New(rand.NewPCG(seed, 2))
	mem := crashfs.New()
	h := newHistory()
	var mu sync.Mutex
	var all []crash
	var armed atomic.Bool
	inject := errorfs.InjectorFunc(func(op errorfs.Op) error {
		if !armed.Load() || op.Kind.ReadOrWrite() != errorfs.OpIsWrite {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		if rng.IntN(every) != 0 {
			return nil
		}
		w := h.before()
		clone := mem.CrashClone(vfs.CrashCloneCfg{
			UnsyncedDataPercent: []int{0, 50, 100}[rng.IntN(3)], RNG: rng,
		})
		all = append(all, crash{clone, h.after(w), fmt.Sprintf("%d %s", op.Kind, op.Path)})
		return nil
	})
	cfg := testConfig(errorfs.Wrap(mem, inject))
	w := &driver{d: mustBootstrap(t, cfg), h: h, rng: rand.New(rand.NewPCG(seed, 3))}
	armed.Store(true)
	for i := range steps {
		if err := w.step(); err != nil {
			t.Fatalf("seed %d step %d: %v", seed, i, err)
		}
		if i%(steps/6) == 0 { // through a clean stop, and the flush of Open
			if err := w.d.Close(); err != nil {
				t.Fatal(err)
			}
			w.d = mustOpen(t, cfg)
		}
	}
	armed.Store(false)
	if err := w.d.Close(); err != nil {
		t.Fatal(err)
	}
	return h, all
}

// TestCrash (S2): whatever was durable is there after a power cut at any
// mutation, the log has no gap, nothing half written counts, and the snapshot is
// the old one or the new one. The opened clone then works on and is cut again.
func TestCrash(t *testing.T) {
	total := 0
	seeds := uint64(6 * *rounds)
	if testing.Short() {
		seeds = 1
	}
	for seed := range seeds {
		h, all := crashes(t, seed, 120, 12)
		total += len(all)
		for i, c := range all {
			own := &history{logs: h.logs, snaps: h.snaps}
			name := fmt.Sprintf("seed %d crash %d (%s)", seed, i, c.op)
			cfg := testConfig(c.fs)
			d, err := Open(cfg)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if err := own.check(d, c.window); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			w := &driver{d: d, h: own, rng: rand.New(rand.NewPCG(seed, uint64(i)))}
			for range 5 {
				if err := w.step(); err != nil {
					t.Fatalf("%s: after: %v", name, err)
				}
			}
			win := own.after(own.before())
			clone := c.fs.CrashClone(vfs.CrashCloneCfg{})
			if err := d.Close(); err != nil {
				t.Fatalf("%s: close: %v", name, err)
			}
			d, err = Open(testConfig(clone))
			if err != nil {
				t.Fatalf("%s: second: %v", name, err)
			}
			if err := own.check(d, win); err != nil {
				t.Fatalf("%s: second: %v", name, err)
			}
			if err := d.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Logf("%d crashes", total)
}

// look makes the next admit ask the file system.
func (s *space) look() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checked = time.Time{}
}

// A fault makes mutations fail with err from the after-th on, count of them.
type fault struct {
	err    error
	after  int64
	count  int64
	seen   atomic.Int64
	healed atomic.Bool
	hit    atomic.Pointer[string]
}

func (f *fault) inject(op errorfs.Op) error {
	// Closing and removing need no space, and the lock is not the disk's.
	if op.Kind.ReadOrWrite() != errorfs.OpIsWrite || f.healed.Load() ||
		op.Kind == errorfs.OpLock || op.Kind == errorfs.OpRemove ||
		op.Kind == errorfs.OpFilePreallocate {
		return nil
	}
	n := f.seen.Add(1) - 1
	if n < f.after || n >= f.after+f.count {
		return nil
	}
	hit := fmt.Sprintf("op %d on %s", op.Kind, op.Path)
	f.hit.CompareAndSwap(nil, &hit)
	return &vfsError{f.err, hit}
}

type vfsError struct {
	err error
	op  string
}

func (e *vfsError) Error() string { return e.op + ": " + e.err.Error() }
func (e *vfsError) Unwrap() error { return e.err }

// faulty runs a driver over a fault, restarting after a failure as an operator
// would, and returns how many mutations it made.
func faulty(t *testing.T, seed uint64, f *fault) int64 {
	name := func() string {
		hit := "nothing"
		if p := f.hit.Load(); p != nil {
			hit = *p
		}
		return fmt.Sprintf("%v x%d from mutation %d (%s)", f.err, f.count, f.after, hit)
	}
	mem := crashfs.New()
	cfg := testConfig(errorfs.Wrap(mem, errorfs.InjectorFunc(f.inject)))
	h := newHistory()
	w := &driver{h: h, rng: rand.New(rand.NewPCG(seed, 3))}
	w.full = func() {
		f.healed.Store(true)
		w.d.space.look() // not in a tenth of a second: now
	}
	fatal := func(format string, err error) {
		t.Helper()
		t.Fatalf("%s: "+format, name(), err)
	}
	start := func() {
		t.Helper()
		for range 3 {
			d, err := Open(cfg)
			if err == nil {
				if _, done := d.Identity(); !done {
					err = d.Bootstrap(Identity{Cluster: 7, Member: 1}, voters(1))
				}
			}
			if err == nil {
				w.d = d
				return
			}
			if !errors.Is(err, ErrNoSpace) && !errors.Is(err, ErrFailed) {
				fatal("open: %v", err)
			}
			if d == nil && errors.Is(f.err, syscall.ENOSPC) != errors.Is(err, ErrNoSpace) {
				fatal("open: wrong kind of error: %v", err)
			}
			if d != nil {
				_ = d.Close()
			}
			f.healed.Store(true)
		}
		t.Fatalf("%s: does not open", name())
	}
	start()
	for range 60 {
		err := w.step()
		if err == nil {
			continue
		}
		if !errors.Is(err, ErrFailed) {
			fatal("step: %v", err)
		}
		if !errors.Is(err, f.err) || errors.Is(err, ErrNoSpace) {
			fatal("step: wrong kind of error: %v", err)
		}
		f.healed.Store(true)
		win := h.after(h.before())
		clone := mem.CrashClone(vfs.CrashCloneCfg{})
		_ = w.d.Close()
		// A power cut right after the failure.
		own := &history{logs: h.logs, snaps: h.snaps}
		d, err := Open(testConfig(clone))
		if err != nil {
			fatal("open after power cut: %v", err)
		}
		if err := own.check(d, win); err != nil {
			fatal("after power cut: %v", err)
		}
		if err := d.Close(); err != nil {
			fatal("close: %v", err)
		}
		// The same directory again.
		start()
		if err := h.check(w.d, win); err != nil {
			fatal("after reopen: %v", err)
		}
	}
	f.healed.Store(true)
	if err := w.d.Close(); err != nil && !errors.Is(err, ErrFailed) {
		fatal("close: %v", err)
	}
	win := h.after(h.before())
	start()
	if err := h.check(w.d, win); err != nil {
		fatal("at the end: %v", err)
	}
	if err := w.d.Close(); err != nil {
		fatal("close: %v", err)
	}
	return f.seen.Load()
}

// TestFaults: every single mutation in turn fails, once or from then on, because
// the disk is broken or full. Each ends in the right error, and nothing that was
// acknowledged is lost.
func TestFaults(t *testing.T) {
	const never = 1 << 40
	n := faulty(t, 1, &fault{err: syscall.EIO, after: never})
	for _, c := range []struct {
		err   error
		count int64
	}{
		{syscall.EIO, 1}, {syscall.ENOSPC, 1}, {syscall.ENOSPC, never},
	} {
		c := c
		t.Run(strings.ReplaceAll(fmt.Sprintf("%v x%d", c.err, c.count), " ", "_"), func(t *testing.T) {
			stride := int64(3)
			switch {
			case testing.Short():
				stride = 20
			case *rounds > 1:
				stride = 1
			}
			for i := int64(0); i < n; i += stride {
				faulty(t, 1, &fault{err: c.err, after: i, count: c.count})
			}
		})
	}
	t.Logf("%d mutations", n)
}
