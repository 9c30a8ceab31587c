package storage

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// wantOpen opens and expects one kind of error, with these words in its text.
func wantOpen(t *testing.T, cfg Config, want error, words ...string) {
	t.Helper()
	d, err := Open(cfg)
	if err == nil {
		mustClose(t, d)
	}
	if !errors.Is(err, want) {
		t.Errorf("got %v, want %v", err, want)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
}

// TestLocked: the second on a directory is refused, in this process or another,
// and is told which directory; afterwards it is free again.
func TestLocked(t *testing.T) {
	if dir := os.Getenv("STORAGE_TEST_LOCKED"); dir != "" {
		cfg := testConfig(nil)
		cfg.Dir = dir
		wantOpen(t, cfg, ErrLocked, dir, "stop the other process")
		return
	}
	cfg := testConfig(nil)
	cfg.Dir = t.TempDir()
	d := mustBootstrap(t, cfg)
	wantOpen(t, cfg, ErrLocked, cfg.Dir)
	cmd := exec.Command(os.Args[0], "-test.run=^TestLocked$")
	cmd.Env = append(os.Environ(), "STORAGE_TEST_LOCKED="+cfg.Dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("other process: %v\n%s", err, out)
	}
	mustClose(t, d)
	mustClose(t, mustOpen(t, cfg))
}

// TestForeign: etcd's data is not taken for an empty directory.
func TestForeign(t *testing.T) {
	fs := vfs.NewMem()
	if err := fs.MkdirAll("data/member/wal", 0o700); err != nil {
		t.Fatal(err)
	}
	wantOpen(t, testConfig(fs), ErrForeign, "etcd", "another directory")
}

// TestUnwritable: an error that is none of the special ones is not disguised.
func TestUnwritable(t *testing.T) {
	cfg := testConfig(nil)
	cfg.Dir = t.TempDir() + "/file"
	if err := os.WriteFile(cfg.Dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wantOpen(t, cfg, ErrFailed, cfg.Dir)
	if _, err := Open(Config{}); err == nil {
		t.Error("no directory was accepted")
	}
}

// TestNoMarker: a database without its marker is not taken for a new one.
func TestNoMarker(t *testing.T) {
	fs := vfs.NewMem()
	mustClose(t, mustBootstrap(t, testConfig(fs)))
	removeMarker(t, fs, "marker.manifest.")
	wantOpen(t, testConfig(fs), ErrCorrupt, "marker.manifest", "keep a copy")
}

func removeMarker(t *testing.T, fs vfs.FS, prefix string) {
	t.Helper()
	names, err := fs.List("data/db")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		if strings.HasPrefix(n, prefix) {
			if err := fs.Remove("data/db/" + n); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestNewerPebble: a format of Pebble's own that is not known yet.
func TestNewerPebble(t *testing.T) {
	fs := vfs.NewMem()
	mustClose(t, mustBootstrap(t, testConfig(fs)))
	removeMarker(t, fs, "marker.format-version.")
	f, err := fs.Create("data/db/marker.format-version.000099.999", "")
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, f)
	wantOpen(t, testConfig(fs), ErrVersion, "run the release that wrote it")
}

// tamper changes a closed Disk's database behind its back, logs and all.
func tamper(t *testing.T, cfg Config, change func(b *pebble.Batch)) {
	t.Helper()
	if err := cfg.FS.Remove("data/ledger"); err != nil {
		t.Fatal(err)
	}
	db, err := pebble.Open("data/db", &pebble.Options{FS: cfg.FS, FormatMajorVersion: formatMajor})
	if err != nil {
		t.Fatal(err)
	}
	b := db.NewBatch()
	change(b)
	if err := b.Commit(pebble.Sync); err != nil {
		t.Fatal(err)
	}
	mustClose(t, db)
}

// TestCorrupt: whatever is wrong with a value, Open says so, and what it was.
func TestCorrupt(t *testing.T) {
	set := func(key, value []byte) func(*pebble.Batch) {
		return func(b *pebble.Batch) { _ = b.Set(key, value, nil) }
	}
	del := func(key []byte) func(*pebble.Batch) {
		return func(b *pebble.Batch) { _ = b.Delete(key, nil) }
	}
	flipped := encodeEntry(entry(7, 1, "7@1"))
	flipped[len(flipped)-1] ^= 1
	for _, c := range []struct {
		name   string
		change func(*pebble.Batch)
		want   error
		word   string
	}{
		{"changed entry", set(entryKey(7), flipped), ErrCorrupt, "entry 7"},
		{"entry moved", set(entryKey(7), encodeEntry(entry(8, 1, "8@1"))), ErrCorrupt, "entry 7"},
		{"lost entry", del(entryKey(7)), ErrCorrupt, "entry 7"},
		{"lost end", del(entryKey(19)), ErrCorrupt, "log ends at 18"},
		{"strange key", set([]byte("l7"), nil), ErrCorrupt, "log key"},
		{"hard state", set(keyHard, []byte("x")), ErrCorrupt, "hard state"},
		{"identity", set(keyIdentity, make([]byte, 9)), ErrCorrupt, "identity"},
		{"lost identity", del(keyIdentity), ErrCorrupt, "no identity"},
		{"membership", set(keyConf, make([]byte, 9)), ErrCorrupt, "bootstrap membership"},
		{"mark", set(keyMark, make([]byte, 9)), ErrCorrupt, "compaction mark"},
		{"peers", set(keyPeers, make([]byte, 9)), ErrCorrupt, "other members"},
		{"mark ahead", set(keyMark, encodeMark(position{15, 1})), ErrCorrupt, "begins after"},
		{"manifest", set(keyManifest, make([]byte, 9)), ErrCorrupt, "snapshot manifest"},
		{"newer", set(keyHard, record(9, keyHard, nil)), ErrVersion, "version 9"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := testConfig(vfs.NewMem())
			d := mustBootstrap(t, cfg)
			if err := d.Append(entries(1, 20, 1), hardState(1, 1, 19), true); err != nil {
				t.Fatal(err)
			}
			if err := writeSnapshot(d, 10, 1, "a", "b"); err != nil {
				t.Fatal(err)
			}
			mustClose(t, d)
			tamper(t, cfg, c.change)
			wantOpen(t, cfg, c.want, c.word, "data")
		})
	}
}

// TestOpenUnread: a database that cannot be read is taken neither for an empty one nor for a
// damaged one.
func TestOpenUnread(t *testing.T) {
	for _, c := range []struct {
		kind errorfs.OpKind
		name string
	}{{errorfs.OpFileReadAt, ".sst"}, {errorfs.OpOpen, "OPTIONS-"}} {
		told := newToldFS()
		d := mustOpen(t, testConfig(told))
		if err := errors.Join(d.db.Set([]byte("a"), nil, pebble.Sync), d.db.Flush()); err != nil {
			t.Fatal(err)
		}
		mustClose(t, d)
		told.failOn(func(op errorfs.Op) error {
			if op.Kind == c.kind && strings.Contains(op.Path, c.name) {
				return syscall.EIO
			}
			return nil
		})
		if _, err := Open(testConfig(told)); !errors.Is(err, ErrFailed) || errors.Is(err, ErrCorrupt) {
			t.Errorf("%s on a disk that cannot be read: %v", c.name, err)
		}
	}
}

// TestCorruptSnapshot: a chunk that is missing, changed, moved or too many is
// found before the reader says that the snapshot is complete.
func TestCorruptSnapshot(t *testing.T) {
	chunk := func(n uint32, data string) []byte {
		return record(chunkVersion, chunkKey(10, n), []byte(data))
	}
	for name, change := range map[string]func(*pebble.Batch){
		"missing first": func(b *pebble.Batch) { _ = b.Delete(chunkKey(10, 0), nil) },
		"missing last":  func(b *pebble.Batch) { _ = b.Delete(chunkKey(10, 2), nil) },
		"changed":       func(b *pebble.Batch) { _ = b.Set(chunkKey(10, 1), []byte("bogus!"), nil) },
		"replaced":      func(b *pebble.Batch) { _ = b.Set(chunkKey(10, 1), chunk(1, "B"), nil) },
		"longer":        func(b *pebble.Batch) { _ = b.Set(chunkKey(10, 1), chunk(1, "bb"), nil) },
		"moved":         func(b *pebble.Batch) { _ = b.Set(chunkKey(10, 1), chunk(2, "c"), nil) },
	} {
		cfg := testConfig(vfs.NewMem())
		d := mustBootstrap(t, cfg)
		if err := d.Append(entries(1, 20, 1), hardState(1, 1, 19), true); err != nil {
			t.Fatal(err)
		}
		if err := writeSnapshot(d, 10, 1, "a", "b", "c"); err != nil {
			t.Fatal(err)
		}
		mustClose(t, d)
		tamper(t, cfg, change)
		d = mustOpen(t, cfg)
		_, chunks, err := readTwice(t, d)
		if !errors.Is(err, ErrCorrupt) ||
			!strings.Contains(err.Error(), "snapshot at 10") ||
			strings.HasPrefix(name, "missing") && !strings.Contains(err.Error(), " is missing") {
			t.Errorf("%s: %v", name, err)
		}
		if (name == "changed" || name == "moved") && len(chunks) != 1 {
			t.Errorf("%s: %d chunks were read before that was seen", name, len(chunks))
		}
		mustClose(t, d)
	}
}

// TestRottenFile flips bytes all over the files of a closed database. Every time,
// Open or a read reports it, or what is read is right.
func TestRottenFile(t *testing.T) {
	mem := vfs.NewCrashableMem()
	d := mustBootstrap(t, testConfig(mem))
	if err := d.Append(entries(1, 60, 1), hardState(1, 1, 59), true); err != nil {
		t.Fatal(err)
	}
	if err := writeSnapshot(d, 10, 1, "a", strings.Repeat("b", 3000)); err != nil {
		t.Fatal(err)
	}
	want, wantSnap, err := observe(d)
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, d)
	mustClose(t, mustOpen(t, testConfig(mem))) // the log is in a table file now
	names, err := mem.List("data/db")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, name := range names {
		if !strings.HasSuffix(name, ".sst") {
			continue
		}
		info, err := mem.Stat("data/db/" + name)
		if err != nil {
			t.Fatal(err)
		}
		for at := int64(0); at < info.Size(); at += 1 + info.Size()/40 {
			clone := mem.CrashClone(vfs.CrashCloneCfg{})
			flip(t, clone, "data/db/"+name, at)
			d, err := Open(testConfig(clone))
			if err != nil {
				if !errors.Is(err, ErrCorrupt) {
					t.Errorf("%s at %d: %v", name, at, err)
				}
				found++
				continue
			}
			got, snap, err := observe(d)
			if err != nil && !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s at %d: %v", name, at, err)
			}
			if err == nil && (!equalLog(got, want) || snap.position != wantSnap.position) {
				t.Errorf("%s at %d: went unnoticed", name, at)
			}
			if err != nil {
				found++
			}
			_ = d.Close()
		}
	}
	if found == 0 {
		t.Error("no damage was found at all")
	}
}

func flip(t *testing.T, fs *vfs.MemFS, name string, at int64) {
	t.Helper()
	f, err := fs.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 0x10
	if _, err := f.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
	mustClose(t, f)
}

// TestLeftovers: what a snapshot that never ended left behind is gone after Open.
func TestLeftovers(t *testing.T) {
	mem := vfs.NewCrashableMem()
	d := mustBootstrap(t, testConfig(mem))
	w, err := d.NewSnapshot(SnapshotMeta{Index: 3, Term: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Write(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	clone := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: newRand()})
	w.Abort()
	mustClose(t, d)
	if names, _ := clone.List("data/incoming"); len(names) == 0 {
		t.Fatal("nothing was left over to begin with")
	}
	d = mustOpen(t, testConfig(clone))
	if names, _ := clone.List("data/incoming"); len(names) > 0 {
		t.Errorf("left over: %v", names)
	}
	mustClose(t, d)
}
