package storage

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// TestNewLedger: what a new ledger says, and was synced, is there after a power cut. That does
// not rest on what Pebble does later.
func TestNewLedger(t *testing.T) {
	fs := newCutFS()
	if err := mkdirDurable(fs, "data"); err != nil {
		t.Fatal(err)
	}
	open := func(fs vfs.FS) *ledger {
		l, err := openLedger(newGuard(fs, func() bool { return false }), "data/ledger")
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	l := open(fs)
	l.note("data/db/000002.log", 77)
	l.settle()
	again := open(fs.CrashClone(vfs.CrashCloneCfg{}))
	if want := []ledgerLine{{"000002.log", 77}}; !slices.Equal(again.lines, want) {
		t.Errorf("after a power cut it says %v, want %v", again.lines, want)
	}
}

// TestLedgerOrder: a ledger that is read keeps its files in order, the oldest first, for it is the
// oldest that go if there are too many for a slot.
func TestLedgerOrder(t *testing.T) {
	told, l := newLedger(t)
	want := []ledgerLine{{"1.log", 10}, {"MANIFEST-2", 20}, {"3.log", 30}}
	for _, line := range want {
		l.note(line.name, line.end)
	}
	again, err := openLedger(newGuard(told, func() bool { return false }), "ledger")
	if err != nil || !slices.Equal(again.lines, want) {
		t.Errorf("it says %v, %v, want %v", again.lines, err, want)
	}
}

// newLedger returns an empty ledger on a told file system.
func newLedger(t *testing.T) (*toldFS, *ledger) {
	t.Helper()
	told := newToldFS()
	l, err := openLedger(newGuard(told, func() bool { return false }), "ledger")
	if err != nil {
		t.Fatal(err)
	}
	told.failAll(nil)
	return told, l
}

// TestLedgerForgets: a file that is gone stands in neither slot, durably. Of one that is not listed
// nothing is written.
func TestLedgerForgets(t *testing.T) {
	for _, slot := range []int64{0, 1} {
		synctest.Test(t, func(t *testing.T) { // in which the ledger is not synced by the clock
			told, l := newLedger(t)
			l.note("2.log", 10)
			l.note("2.log", 20)
			l.note("2.log", 19) // less than is known
			l.note("1.log", 10)
			l.strike("1.log")
			told.failAll(nil)
			l.strike("3.log")
			if len(told.told) > 0 {
				t.Errorf("to forget what was not known: %v", told.told)
			}
			cut := told.mem.CrashClone(vfs.CrashCloneCfg{})
			flip(t, cut, "ledger", slot*ledgerSlot+10)
			again, err := openLedger(newGuard(cut, func() bool { return false }), "ledger")
			if want := []ledgerLine{{"2.log", 20}}; err != nil || !slices.Equal(again.lines, want) {
				t.Errorf("without slot %d: %v, %v, want %v", slot, again.lines, err, want)
			}
		})
	}
}

// TestLedgerStruck: before Pebble makes a file anew, removes it or gives it another name, the
// ledger has forgotten it, and is not locked while that becomes durable.
func TestLedgerStruck(t *testing.T) {
	for name, change := range map[string]func(g *guard) error{
		"create": func(g *guard) error { _, err := g.Create("1.log", ""); return err },
		"remove": func(g *guard) error { return g.Remove("1.log") },
		"reuse":  func(g *guard) error { _, err := g.ReuseForWrite("1.log", "2.log", ""); return err },
		"onto":   func(g *guard) error { _, err := g.ReuseForWrite("3.log", "1.log", ""); return err },
	} {
		synctest.Test(t, func(t *testing.T) { // in which the ledger is not synced by the clock
			told, l := newLedger(t)
			mustClose(t, mustCreate(t, told, "1.log"))
			mustClose(t, mustCreate(t, told, "3.log"))
			l.note("1.log", 10)
			l.guard.ledger = l
			told.failOn(func(op errorfs.Op) error {
				switch op.Kind {
				case errorfs.OpFileSyncData:
					if !l.mu.TryLock() {
						t.Errorf("%s: the ledger is locked over a sync", name)
						return nil
					}
					l.mu.Unlock()
				case errorfs.OpCreate, errorfs.OpRemove, errorfs.OpReuseForWrite:
					if len(l.lines) > 0 {
						t.Errorf("%s: the ledger has %v", name, l.lines)
					}
				}
				return nil
			})
			if err := change(l.guard); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

// TestLedgerClosed: what the ledger says is durable when the Disk is closed.
func TestLedgerClosed(t *testing.T) {
	fs := newCutFS()
	d := mustBootstrap(t, testConfig(fs))
	mustClose(t, d)
	cut := fs.CrashClone(vfs.CrashCloneCfg{})
	if string(contents(t, cut, "data/ledger")) != string(contents(t, fs, "data/ledger")) {
		t.Error("a power cut takes something from the ledger of a Disk that was closed")
	}
}

// TestLedgerSettles: the ledger is synced a while after it was written, once for all that came in
// that while, and again for what comes later.
func TestLedgerSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told, l := newLedger(t)
		wait := func(d time.Duration, want int) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if n := told.count(errorfs.OpFileSyncData); n != want {
				t.Errorf("synced %d times, want %d", n, want)
			}
		}
		for i := range int64(3) {
			l.note("1.log", 10+i)
		}
		wait(ledgerDelay-1, 0)
		wait(1, 1)
		wait(10*ledgerDelay, 1)
		l.note("1.log", 20)
		wait(ledgerDelay, 2)
	})
}

// TestLedgerFails: a ledger that cannot be read is not opened. One that cannot be written or synced
// is the disk's failure. With the guard it is closed, and its file too.
func TestLedgerFails(t *testing.T) {
	for name, c := range map[string]struct {
		kind errorfs.OpKind
		do   func(l *ledger)
	}{
		"write ledger": {errorfs.OpFileWriteAt, func(l *ledger) { l.note("1.log", 10) }},
		"sync ledger":  {errorfs.OpFileSyncData, func(l *ledger) { l.settle() }},
	} {
		told, l := newLedger(t)
		told.fail = func(op errorfs.Op) error {
			if op.Kind == c.kind {
				return syscall.EIO
			}
			return nil
		}
		go c.do(l) // it may be parked
		<-l.guard.failed
		if err := l.guard.err(); !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, kind := range []errorfs.OpKind{errorfs.OpOpen, errorfs.OpOpenDir, errorfs.OpFileReadAt} {
		told := newToldFS()
		told.fail = func(op errorfs.Op) error {
			if op.Kind == kind {
				return syscall.EIO
			}
			return nil
		}
		_, err := openLedger(newGuard(told, func() bool { return false }), "ledger")
		if !errors.Is(err, syscall.EIO) {
			t.Errorf("kind %d: %v", kind, err)
		}
	}
	fs := &countedFS{FS: vfs.NewMem()}
	g := newGuard(fs, func() bool { return false })
	if _, err := openLedger(g, "ledger"); err != nil || fs.open.Load() != 1 {
		t.Errorf("%d files are open, %v", fs.open.Load(), err)
	}
	if g.abandon(); fs.open.Load() != 0 {
		t.Error("the ledger is open after the guard was abandoned")
	}
}

// TestLedgerFull: of more files than there is room for, the first are left out. A slot whose length
// makes no sense, or that ends within a line, is damaged.
func TestLedgerFull(t *testing.T) {
	l := &ledger{seq: 1}
	for i := range int64(500) {
		l.lines = append(l.lines, ledgerLine{fmt.Sprintf("%06d.log", i), i})
	}
	b := l.encodeLocked()
	if len(b) > ledgerSlot || len(b) < ledgerSlot-100 {
		t.Errorf("500 lines are %d bytes, of %d", len(b), ledgerSlot)
	}
	_, lines, err := decodeLedger(b[2:])
	if err != nil || !slices.Equal(lines, l.lines[500-len(lines):]) || len(lines) < 200 {
		t.Errorf("%d lines, %v", len(lines), err)
	}
	short := record(ledgerVersion, keyLedger, b[2+headerLen:len(b)-1])
	if _, _, err := decodeLedger(short); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a line that is cut short: %v", err)
	}
	told, l := newLedger(t)
	l.note("1.log", 10)
	write(t, told.mem.MemFS, "ledger", 2*ledgerSlot-1, []byte{0})
	l, err = openLedger(newGuard(told, func() bool { return false }), "ledger")
	if err != nil || len(l.lines) != 1 {
		t.Errorf("of a ledger of full length: %v, %v", l.lines, err)
	}
	write(t, told.mem.MemFS, "ledger", ledgerSlot, []byte{0xff, 0xff})
	_, err = openLedger(newGuard(told, func() bool { return false }), "ledger")
	if !errors.Is(err, ErrCorrupt) {
		t.Errorf("a slot of 65,535 bytes: %v", err)
	}
}
