package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	ledgerVersion = 1

	// The ledger is two slots of one page each, written in turn.
	ledgerSlot = 4 << 10

	// ledgerDelay is how long after a sync of Pebble's files the ledger is
	// synced as well.
	ledgerDelay = time.Second
)

var keyLedger = []byte("ledger")

// A ledger is a small file beside the database that says how far each of
// Pebble's logs and manifests was synced. Pebble takes the first record that it
// cannot read for the end of its newest log, and of its manifest: after a crash a
// torn write looks like that. But a flipped bit or a lost sector before the end
// looks the same, and a log that is gone looks like one that never was. The
// ledger tells them apart: what it says was there must be there, and readable.
//
// It is written after each sync of such a file and before the caller of that sync
// is told, but is not itself synced at once: that would make every append two
// syncs. So it is exact after the death of the process. After a power cut it may
// be older by ledgerDelay, and what was synced in that time is protected only by
// what later records of the log say about earlier ones (see checkFile), and by
// the other members.
//
// It never says more than is true. What it says was synced before. And before a
// file is removed or written anew, the ledger forgets it, durably, in both slots.
// Of the two slots the newer one counts, if it can be read.
//
// Every released program keeps the ledger. One that did not would append to files and remove them
// behind its back. Too little in the ledger is harmless; a file that it names and that is gone is
// taken for damage at the next start, which is refused: nothing that was acknowledged is denied.
type ledger struct {
	guard *guard
	name  string
	file  vfs.File // closed by the guard

	mu    sync.Mutex // guards what follows, also over writing
	seq   uint64     // of the newest slot
	lines []ledgerLine
	due   bool   // settle is going to be called
	buf   []byte // of the newest slot
}

// A ledgerLine says that the first end bytes of a file of Pebble's were synced.
type ledgerLine struct {
	name string // without the directory
	end  int64
}

// openLedger opens the ledger, or makes an empty one, durably. The guard must be strict.
func openLedger(g *guard, name string) (*ledger, error) {
	f, err := g.FS.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, err
	}
	g.track(f, name)
	if err := syncDir(g, g.PathDir(name)); err != nil {
		return nil, err
	}
	l := &ledger{guard: g, name: name, file: f}
	return l, l.load()
}

// load reads the newest slot that can be read. Slots of zeros are those of a
// ledger that was never written. It returns ErrCorrupt if there is no other.
func (l *ledger) load() error {
	buf := make([]byte, 2*ledgerSlot)
	if _, err := l.file.ReadAt(buf, 0); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	var bad error
	for slot := range slices.Chunk(buf, ledgerSlot) {
		n := int(binary.LittleEndian.Uint16(slot))
		if n == 0 {
			continue
		}
		seq, lines, err := decodeLedger(slot[2:min(2+n, ledgerSlot)])
		if err != nil {
			bad = err
		} else if seq > l.seq {
			l.seq, l.lines = seq, lines
		}
	}
	if l.seq > 0 {
		return nil
	}
	return bad
}

func decodeLedger(rec []byte) (seq uint64, lines []ledgerLine, err error) {
	p, err := open(rec, ledgerVersion, keyLedger)
	if err != nil {
		return 0, nil, fmt.Errorf("ledger: %w", err)
	}
	r := reader{b: p}
	seq = r.uvarint()
	for len(r.b) > 0 {
		lines = append(lines, ledgerLine{name: string(r.bytes()), end: int64(r.uvarint())})
	}
	slices.Reverse(lines) // encodeLocked begins with the newest
	return seq, lines, r.end("ledger")
}

// encodeLocked returns the next slot. Pebble has a dozen of these files at most.
// If there ever were too many for a slot, the oldest would go without a line.
func (l *ledger) encodeLocked() []byte {
	b := append(l.buf[:0], make([]byte, 2+headerLen)...)
	b = binary.AppendUvarint(b, l.seq)
	for _, line := range slices.Backward(l.lines) {
		if len(b)+len(line.name)+2*binary.MaxVarintLen64 > ledgerSlot {
			break
		}
		b = binary.AppendUvarint(b, uint64(len(line.name)))
		b = append(b, line.name...)
		b = binary.AppendUvarint(b, uint64(line.end))
	}
	binary.LittleEndian.PutUint16(b, uint16(len(b)-2))
	seal(b[2:], ledgerVersion, keyLedger)
	l.buf = b
	return b
}

// writeLocked writes the next slot, over the older one.
func (l *ledger) writeLocked() {
	l.seq++
	b := l.encodeLocked()
	_ = l.guard.do("write", l.name, true, func() error {
		_, err := l.file.WriteAt(b, int64(l.seq%2)*ledgerSlot)
		return err
	})
}

// note says that the first end bytes of a file were synced.
func (l *ledger) note(path string, end int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	name := l.guard.PathBase(path)
	i := slices.IndexFunc(l.lines, func(line ledgerLine) bool { return line.name == name })
	if i < 0 {
		i = len(l.lines)
		l.lines = append(l.lines, ledgerLine{name: name})
	}
	if end <= l.lines[i].end {
		return
	}
	l.lines[i].end = end
	l.writeLocked()
	if !l.due {
		l.due = true
		time.AfterFunc(ledgerDelay, l.settle)
	}
}

// settle syncs the ledger, beside Pebble. It does nothing after Close. An error is
// the disk's, as with zeros.
func (l *ledger) settle() {
	l.mu.Lock()
	l.due = false
	l.mu.Unlock()
	if err := l.guard.aside(l.file.SyncData); err != nil {
		l.guard.blame("sync", l.name, err)
	}
}

// sync makes durable what the ledger says. It does not come back if that fails.
func (l *ledger) sync() { _ = l.guard.do("sync", l.name, false, l.file.SyncData) }

// strike forgets a file, durably, before it is removed or written anew. It does not come back if
// that fails.
func (l *ledger) strike(path string) {
	l.mu.Lock()
	name, before := l.guard.PathBase(path), len(l.lines)
	l.lines = slices.DeleteFunc(l.lines, func(line ledgerLine) bool { return line.name == name })
	if len(l.lines) == before {
		l.mu.Unlock()
		return
	}
	l.writeLocked()
	l.writeLocked()
	l.mu.Unlock()
	l.sync()
}
