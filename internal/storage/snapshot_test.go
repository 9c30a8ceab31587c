package storage

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// TestSnapshotFaults: whatever fails of writing a snapshot beside the database, its writer says so
// and goes on with nothing, the old snapshot is there, no file is left over, and the next one goes
// well. A full disk is called that.
func TestSnapshotFaults(t *testing.T) {
	for cause, kind := range map[error]error{
		syscall.EIO: ErrFailed, syscall.ENOSPC: ErrNoSpace,
	} {
		var left atomic.Int64
		left.Store(1 << 40)
		cfg := testConfig(errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && op.Kind != errorfs.OpRemove &&
				strings.HasPrefix(op.Path, "data/incoming") && left.Add(-1) == -1 {
				return cause
			}
			return nil
		})))
		d := mustBootstrap(t, cfg)
		if err := d.Append(entries(1, 200, 1), hardState(1, 1, 199), true); err != nil {
			t.Fatal(err)
		}
		if err := writeSnapshot(d, 1, 1, "old"); err != nil {
			t.Fatal(err)
		}
		newest := SnapshotMeta{Index: 1}
		failed := 0
		for n := int64(0); n < 100; n++ {
			next := SnapshotMeta{Index: newest.Index + 1, Term: 1, ConfState: voters(1)}
			left.Store(n)
			err := snapshotInParts(t, d, next)
			if err == nil { // Pebble can do without what failed, if anything has
				if info, _, err := readSnapshot(d); info.Index != next.Index || err != nil {
					t.Errorf("%v at mutation %d: %+v, %v", cause, n, info, err)
				}
				if newest = next; left.Load() >= 0 {
					break
				}
				continue
			}
			if !errors.Is(err, cause) || !errors.Is(err, kind) {
				t.Errorf("%v at mutation %d: %v", cause, n, err)
			}
			failed++
			if names, _ := cfg.FS.List("data/incoming"); len(names) > 0 {
				t.Errorf("%v at mutation %d: left over: %v", cause, n, names)
			}
			if info, _, err := readSnapshot(d); info.Index != newest.Index || err != nil {
				t.Errorf("%v at mutation %d: %+v, %v", cause, n, info, err)
			}
			left.Store(1 << 40)
			if err := writeSnapshot(d, next.Index, 1, "next"); err != nil {
				t.Errorf("%v at mutation %d: the next: %v", cause, n, err)
			}
			newest = next
		}
		if failed < 5 {
			t.Errorf("%v: %d mutations failed", cause, failed)
		}
		mustClose(t, d)
	}
}

// snapshotInParts writes a snapshot of two tables. After an error each call must return one.
func snapshotInParts(t *testing.T, d *Disk, meta SnapshotMeta) error {
	t.Helper()
	w, err := d.NewSnapshot(meta)
	if err != nil {
		return err
	}
	for _, chunk := range []string{"a", strings.Repeat("b", 100_000), "c"} {
		w.size += tableBytes - 1
		if err = w.Write([]byte(chunk)); err != nil || w.err != nil {
			break
		}
	}
	if err == nil && w.err == nil {
		err = w.Finish()
	}
	if err == nil && w.err != nil {
		t.Errorf("it is not told that %v", w.err)
	}
	if err != nil {
		for name, again := range map[string]error{
			"write": w.Write(nil), "finish": w.Finish(), "commit": w.Commit(),
		} {
			if again == nil {
				t.Errorf("after %v: %s goes well", err, name)
			}
		}
		return err
	}
	return w.Commit()
}

// TestSnapshotTables: a table is ended when it is large enough, not before, and what is in several
// is one snapshot. Tables are not compressed. The chunks have a number of four bytes.
func TestSnapshotTables(t *testing.T) {
	d := mustBootstrap(t, testConfig(vfs.NewMem()))
	defer mustClose(t, d)
	w, err := d.NewSnapshot(SnapshotMeta{Index: 1, Term: 1})
	if err != nil {
		t.Fatal(err)
	}
	const half = 1 << 20
	var want []string
	add := func(tables int) {
		t.Helper()
		want = append(want, strings.Repeat("x", half))
		if err := w.Write([]byte(want[len(want)-1])); err != nil || len(w.paths) != tables {
			t.Errorf("%d tables, %v, want %d", len(w.paths), err, tables)
		}
	}
	add(1)
	if w.size != half {
		t.Errorf("the size of the table is %d", w.size)
	}
	w.size = tableBytes - half - 1
	add(1)
	w.size = tableBytes - half
	add(1)
	add(2)
	add(2)
	info, err := d.fs.Stat(w.paths[0])
	if err != nil || info.Size() < 3*half {
		t.Errorf("the first table: %v, %v", info, err)
	}
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	if info, chunks, err := readSnapshot(d); err != nil || info.Chunks != 5 || info.Bytes != 5*half ||
		!slices.Equal(chunks, want) {
		t.Errorf("%+v, %d chunks, %v", info, len(chunks), err)
	}
	old := w
	if w, err = d.NewSnapshot(SnapshotMeta{Index: 2, Term: 1}); err != nil {
		t.Fatalf("after Commit no other begins: %v", err)
	}
	old.Abort()
	if _, err := d.NewSnapshot(SnapshotMeta{Index: 3, Term: 1}); !errors.Is(err, ErrBusy) {
		t.Errorf("a third one beside the second: %v", err)
	}
	w.manifest.chunks = math.MaxUint32
	if err := w.Write(nil); err == nil {
		t.Error("a chunk without a number was taken")
	}
	w.Abort()
}

// TestSnapshotReads: whatever cannot be read of a snapshot is told, again and again, and another
// reader reads it all.
func TestSnapshotReads(t *testing.T) {
	var left atomic.Int64
	left.Store(1 << 40)
	cfg := testConfig(errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileReadAt && strings.HasSuffix(op.Path, ".sst") && left.Add(-1) == -1 {
			return syscall.EIO
		}
		return nil
	})))
	cfg.CacheBytes = 1
	d := mustBootstrap(t, cfg)
	var want []string
	for i := range 20 {
		want = append(want, strings.Repeat(fmt.Sprint(i), 20_000))
	}
	if err := writeSnapshot(d, 5, 1, want...); err != nil {
		t.Fatal(err)
	}
	mustClose(t, d)
	d = mustOpen(t, cfg)
	defer mustClose(t, d)
	failed := 0
	for n := int64(0); ; n++ {
		left.Store(n)
		info, chunks, err := readTwice(t, d)
		done := left.Load() >= 0
		left.Store(1 << 40)
		switch {
		case err == nil && (!slices.Equal(chunks, want) || info.Chunks != 20):
			t.Errorf("after %d reads: %d chunks", n, len(chunks))
		case err != nil && !errors.Is(err, syscall.EIO):
			t.Errorf("after %d reads: %v", n, err)
		}
		if done {
			break
		}
		failed++
	}
	if failed < 5 {
		t.Errorf("%d reads failed", failed)
	}
}

// readTwice is readSnapshot, and asks once more after the end or an error, which must stay.
func readTwice(t *testing.T, d *Disk) (info SnapshotInfo, chunks []string, err error) {
	t.Helper()
	r, err := d.OpenSnapshot()
	if err != nil {
		return info, nil, err
	}
	for err == nil {
		var c []byte
		if c, err = r.Next(); err == nil {
			chunks = append(chunks, string(c))
		}
	}
	if _, again := r.Next(); again == nil || again.Error() != err.Error() {
		t.Errorf("after %v: %v", err, again)
	}
	if again := r.Close(); errors.Is(err, syscall.EIO) && !errors.Is(again, syscall.EIO) {
		t.Errorf("after %v Close says %v", err, again)
	}
	if _, open := d.readers[r]; open {
		t.Error("a reader that is closed is kept in mind")
	}
	if _, again := r.Next(); !errors.Is(again, errClosed) {
		t.Errorf("after Close: %v", again)
	}
	mustClose(t, r)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return r.Meta(), chunks, err
}

// TestAbortCloses: a snapshot that is given up leaves no file open.
func TestAbortCloses(t *testing.T) {
	fs := &countedFS{FS: vfs.NewMem()}
	d := mustBootstrap(t, testConfig(fs))
	defer mustClose(t, d)
	before := fs.open.Load()
	w, err := d.NewSnapshot(SnapshotMeta{Index: 1, Term: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write([]byte("x")); err != nil || fs.open.Load() != before+1 {
		t.Errorf("%d files more are open, %v", fs.open.Load()-before, err)
	}
	if w.Abort(); fs.open.Load() != before {
		t.Errorf("%d files more are open after Abort", fs.open.Load()-before)
	}
}

// TestSnapshotSaid: it is said of a snapshot that it could not be ended, that the Disk was closed
// before, or that what describes it cannot be read.
func TestSnapshotSaid(t *testing.T) {
	told := newToldFS()
	d := mustBootstrap(t, testConfig(told))
	begin := func() *SnapshotWriter {
		w, err := d.NewSnapshot(SnapshotMeta{Index: 2, Term: 1})
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	w := begin()
	told.failOn(func(op errorfs.Op) error {
		if strings.Contains(op.Path, "incoming") {
			return syscall.EIO
		}
		return nil
	})
	if err := w.Commit(); !errors.Is(err, syscall.EIO) {
		t.Errorf("without a table: %v", err)
	}
	told.failOn(nil)
	if err := writeSnapshot(d, 1, 1); err != nil {
		t.Fatal(err)
	}
	if err := d.db.Set(keyManifest, []byte("x"), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := d.OpenSnapshot(); !errors.Is(err, ErrCorrupt) {
		t.Errorf("without a manifest that can be read: %v", err)
	}
	w = begin()
	if err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	told.failOn(func(op errorfs.Op) error {
		switch {
		case op.Kind == errorfs.OpLink:
			return syscall.EXDEV
		case op.Kind == errorfs.OpCreate && strings.HasSuffix(op.Path, ".sst"):
			return syscall.ENOSPC
		}
		return nil
	})
	if err := w.Commit(); !errors.Is(err, ErrNoSpace) {
		t.Errorf("without room for the table: %v", err)
	}
	told.failOn(nil)
	w = begin()
	if err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	mustClose(t, d)
	if err := w.Commit(); !errors.Is(err, errClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestSnapshotOfAnotherLog: a snapshot that is not in the log, and ends before what was committed,
// is of another log. It does not take the log with it, not at the next start either.
func TestSnapshotOfAnotherLog(t *testing.T) {
	cfg := testConfig(vfs.NewMem())
	d := mustBootstrap(t, cfg)
	if err := d.Append(entries(1, 10, 1), hardState(1, 1, 8), true); err != nil {
		t.Fatal(err)
	}
	if err := writeSnapshot(d, 7, 2, "state"); !errors.Is(err, ErrCorrupt) {
		t.Errorf("it is taken: %v", err)
	}
	if last, err := d.LastIndex(); last != 9 || err != nil {
		t.Errorf("the log ends at %d, %v", last, err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(cfg); !errors.Is(err, ErrCorrupt) {
		t.Errorf("the member starts: %v", err)
	}
}
