package storage

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/test/crashfs"
)

// killed returns the file system as the death of the process leaves it.
func killed(mem *vfs.MemFS) *vfs.MemFS {
	return mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: newRand()})
}

// A damage is something done to the files of a closed Disk.
type damage struct {
	name string
	do   func(fs *vfs.MemFS)
}

// write overwrites a part of a file.
func write(t *testing.T, fs *vfs.MemFS, name string, at int64, b []byte) {
	t.Helper()
	f, err := fs.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
	mustClose(t, f)
}

func removeLedger(t *testing.T, fs *vfs.MemFS) {
	t.Helper()
	if err := fs.Remove("data/ledger"); err != nil {
		t.Fatal(err)
	}
	dir, err := fs.OpenDir("data")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
		t.Fatal(err)
	}
}

func contents(t *testing.T, fs vfs.FS, name string) []byte {
	t.Helper()
	info, err := fs.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	f, err := fs.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer mustClose(t, f)
	b := make([]byte, info.Size())
	if _, err := f.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	return b
}

// damages returns every byte flipped in the last block of each file in lines and a
// little around it (of a block that is rather full, every byte near the end, and some
// others), each sector zeroed, each file removed.
func damages(t *testing.T, fs *vfs.MemFS, lines []ledgerLine) (all []damage) {
	for _, line := range lines {
		path, end := "data/db/"+line.name, int(line.end)
		b := contents(t, fs, path)
		for at := max(0, end-1-(end-1)%logBlock-20); at < min(end+20, len(b)); at++ {
			if at%797 != 0 && at < end-400 && end%logBlock > 2000 || testing.Short() && at%13 != 0 {
				continue
			}
			bits := []byte{1, 0x40, 0xff}[at%3]
			all = append(all, damage{
				fmt.Sprintf("%s: byte %d of %d flipped by %#x", path, at, end, bits),
				func(fs *vfs.MemFS) { write(t, fs, path, int64(at), []byte{b[at] ^ bits}) },
			})
		}
		for at := 0; at < end; at += 512 {
			all = append(all, damage{
				fmt.Sprintf("%s: sector at %d zeroed", path, at),
				func(fs *vfs.MemFS) { write(t, fs, path, int64(at), make([]byte, min(512, len(b)-at))) },
			})
		}
		all = append(all, damage{path + " removed", func(fs *vfs.MemFS) {
			if err := fs.Remove(path); err != nil {
				t.Fatal(err)
			}
		}})
	}
	return all
}

// listed returns what the ledger says.
func listed(d *Disk) []ledgerLine {
	d.guard.ledger.mu.Lock()
	defer d.guard.ledger.mu.Unlock()
	return slices.Clone(d.guard.ledger.lines)
}

// A wreck is what the death of a process left: synced writes, and some that were
// not synced, at the end.
type wreck struct {
	d      *Disk        // to be closed
	fs     *vfs.MemFS   // a copy of its files
	lines  []ledgerLine // of the ledger
	synced modelLog
}

// fillDisk appends synced entries of these sizes.
func fillDisk(t *testing.T, d *Disk, sizes ...int) {
	t.Helper()
	for _, size := range sizes {
		last, _ := d.LastIndex()
		e := entry(last+1, 1, strings.Repeat("x", size))
		err := d.AppendReserved([]*raftpb.Entry{e}, hardState(1, 1, 1))
		if err != nil {
			t.Fatal(err)
		}
	}
}

// A cutFS tells of syncs of logs, and can be full for table files.
type cutFS struct {
	*crashfs.FS
	full atomic.Bool
	sync atomic.Pointer[func()] // called once, before a sync of a log
}

func newCutFS() *cutFS { return &cutFS{FS: crashfs.New()} }

func (c *cutFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if c.full.Load() && strings.HasSuffix(name, ".sst") {
		return nil, syscall.ENOSPC
	}
	f, err := c.FS.Create(name, category)
	return c.wrap(name, f), err
}

func (c *cutFS) ReuseForWrite(
	oldname, newname string, category vfs.DiskWriteCategory,
) (vfs.File, error) {
	f, err := c.FS.ReuseForWrite(oldname, newname, category)
	return c.wrap(newname, f), err
}

func (c *cutFS) wrap(name string, f vfs.File) vfs.File {
	if f == nil || !isLog(name) {
		return f
	}
	return cutFile{f, c}
}

type cutFile struct {
	vfs.File
	fs *cutFS
}

func (f cutFile) SyncData() error {
	if tell := f.fs.sync.Swap(nil); tell != nil {
		(*tell)()
	}
	return f.File.SyncData()
}

// kill appends once more, and copies the files when that is written and not synced.
func kill(t *testing.T, d *Disk, fs *cutFS) wreck {
	t.Helper()
	synced, _, err := observe(d)
	if err != nil {
		t.Fatal(err)
	}
	w := wreck{d: d, synced: synced, lines: listed(d)}
	cut := func() { w.fs = killed(fs.MemFS) }
	fs.sync.Store(&cut)
	fillDisk(t, d, 300)
	return w
}

var wrecks = map[string]func(t *testing.T, mem *cutFS) wreck{
	"new": func(t *testing.T, mem *cutFS) wreck {
		d := mustBootstrap(t, testConfig(mem))
		fillDisk(t, d, 11_000, 11_000, 11_000, 20, 20, 20, 20, 20)
		return kill(t, d, mem)
	},
	"opened again": func(t *testing.T, mem *cutFS) wreck {
		d := mustBootstrap(t, testConfig(mem))
		fillDisk(t, d, 20, 20)
		mustClose(t, d)
		d = mustOpen(t, testConfig(mem))
		fillDisk(t, d, 50, 50, 50, 50, 50)
		return kill(t, d, mem)
	},
	"recycled log": func(t *testing.T, mem *cutFS) wreck {
		d := mustBootstrap(t, testConfig(mem))
		for range 6 {
			fillDisk(t, d, 3000)
			if err := d.db.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		fillDisk(t, d, 50, 50, 50)
		return kill(t, d, mem)
	},
	"several logs": func(t *testing.T, mem *cutFS) wreck {
		d := mustBootstrap(t, testConfig(mem))
		mem.full.Store(true) // so nothing is flushed
		defer mem.full.Store(false)
		for len(listed(d)) < 4 {
			fillDisk(t, d, 20_000)
		}
		fillDisk(t, d, 50, 50, 50)
		return kill(t, d, mem)
	},
}

// TestDamagedLog: whatever is damaged of the end of Pebble's logs and manifest, or
// removed, Open refuses, or nothing is lost that was synced.
func TestDamagedLog(t *testing.T) {
	for name, make := range wrecks {
		t.Run(name, func(t *testing.T) {
			mem := newCutFS()
			w := make(t, mem)
			mustNotice(t, w.fs, damages(t, w.fs, w.lines), w.synced)
			mustClose(t, w.d)
			lines := slices.DeleteFunc(listed(w.d), func(line ledgerLine) bool {
				_, err := mem.Stat("data/db/" + line.name)
				return err != nil // it was flushed meanwhile
			})
			mustNotice(t, mem.MemFS, damages(t, mem.MemFS, lines), w.synced)
		})
	}
}

// mustNotice does each damage to a copy of the files and opens it.
func mustNotice(t *testing.T, fs *vfs.MemFS, all []damage, want modelLog) {
	t.Helper()
	mustClose(t, mustOpen(t, testConfig(killed(fs))))
	refused := 0
	for _, c := range all {
		clone := killed(fs)
		c.do(clone)
		d, err := Open(testConfig(clone))
		if err != nil {
			refused++
			if !errors.Is(err, ErrCorrupt) {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		if err := holds(d, want); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		mustClose(t, d)
	}
	t.Logf("%d kinds of damage, %d refused", len(all), refused)
}

// holds reports an error unless d holds all of want.
func holds(d *Disk, want modelLog) error {
	got, _, err := observe(d)
	if err != nil {
		return err
	}
	if got.last() >= want.last() {
		got = got.below(want.last() + 1)
	}
	if !equalLog(got, want) {
		return fmt.Errorf("lost: %v, want %v", got, want)
	}
	return nil
}

// TestTornLog: a log that was torn anywhere after what was synced opens, and
// nothing synced is lost, with a ledger and without.
func TestTornLog(t *testing.T) {
	for name, make := range wrecks {
		for _, ledger := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/ledger %v", name, ledger), func(t *testing.T) {
				w := make(t, newCutFS())
				mustClose(t, w.d)
				if !ledger {
					removeLedger(t, w.fs)
				}
				mustTear(t, w)
			})
		}
	}
}

func mustTear(t *testing.T, w wreck) {
	t.Helper()
	line := w.lines[len(w.lines)-1]
	path := "data/db/" + line.name
	b := contents(t, w.fs, path)
	if b[line.end] == 0 {
		t.Fatalf("nothing follows byte %d of %s", line.end, path)
	}
	stride := int64(1)
	if testing.Short() {
		stride = 13
	}
	for at := line.end; at < line.end+320; at += stride {
		clone := killed(w.fs)
		write(t, clone, path, at, make([]byte, int64(len(b))-at))
		d, err := Open(testConfig(clone))
		if err != nil {
			t.Fatalf("torn at %d: %v", at, err)
		}
		if err := holds(d, w.synced); err != nil {
			t.Errorf("torn at %d: %v", at, err)
		}
		mustClose(t, d)
	}
}

// TestStaleLedger: after a power cut that took the newest lines of the ledger, what
// a later record says was synced is missed nevertheless.
func TestStaleLedger(t *testing.T) {
	w := wrecks["opened again"](t, newCutFS())
	mustClose(t, w.d)
	removeLedger(t, w.fs)
	path := "data/db/" + w.lines[len(w.lines)-1].name
	mustClose(t, mustOpen(t, testConfig(killed(w.fs))))
	for at := range int64(150) {
		clone := killed(w.fs)
		flip(t, clone, path, at)
		wantOpen(t, testConfig(clone), ErrCorrupt, "later records", "--replace")
	}
}

// TestLedgerDamaged: a ledger of which one slot or both cannot be read, or that is missing, keeps
// nobody from opening. If nothing of it is left, the log says so.
func TestLedgerDamaged(t *testing.T) {
	for _, slots := range [][]int64{nil, {0}, {1}, {0, 1}} {
		w := wrecks["new"](t, newCutFS())
		mustClose(t, w.d)
		for _, slot := range slots {
			flip(t, w.fs, "data/ledger", slot*ledgerSlot+10)
		}
		if slots == nil {
			removeLedger(t, w.fs)
		}
		var log lockedBuffer
		c := testConfig(w.fs)
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
		d := mustOpen(t, c)
		if err := holds(d, w.synced); err != nil {
			t.Errorf("slots %v: %v", slots, err)
		}
		mustClose(t, d)
		said := strings.Contains(log.String(), "the end of the log cannot be checked")
		if said != (len(slots) != 1) {
			t.Errorf("slots %v: the log says so: %v\n%s", slots, said, &log)
		}
	}
}

// TestLedgerOfNewDatabase: one that is opened for the first time is not said to lack its ledger.
func TestLedgerOfNewDatabase(t *testing.T) {
	var log lockedBuffer
	c := testConfig(vfs.NewMem())
	c.Logger = slog.New(slog.NewTextHandler(&log, nil))
	mustClose(t, mustOpen(t, c))
	mustClose(t, mustOpen(t, c))
	if strings.Contains(log.String(), "cannot be checked") {
		t.Errorf("the log says: %s", &log)
	}
}
