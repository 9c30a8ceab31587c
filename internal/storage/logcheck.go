package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// The form of Pebble's logs and manifests (its package record): blocks, and in
// each block chunks, which do not cross its end. What is left of a block that has
// no room for another chunk is zero. A chunk begins with a checksum of its type
// and all that follows, the length of its data and its type. In a log the number
// of the log comes next. In all logs but the first of a new database, how far the
// log was synced for certain when the chunk was written comes after that. A log
// that was closed ends with a header of another kind.
const (
	logBlock   = 32 << 10
	logTrailer = 11

	manifestHeader = 7
	firstLogHeader = 11
	logHeader      = 19
)

// A logFile is what is known of one of Pebble's logs or manifests.
type logFile struct {
	name   string
	log    bool
	number uint32 // of a log
	header int    // length of a chunk's header
}

// parseLogFile returns the log or manifest of this name, and whether it is one.
func parseLogFile(name string) (logFile, bool) {
	if number, ok := strings.CutSuffix(name, ".log"); ok {
		n, err := strconv.ParseUint(number, 10, 64)
		return logFile{name: name, log: true, number: uint32(n), header: logHeader}, err == nil
	}
	return logFile{name: name, header: manifestHeader}, strings.HasPrefix(name, "MANIFEST-")
}

// learn looks at the file's first chunk, to know the header of all.
func (f *logFile) learn(b []byte) {
	if f.log && len(b) > 6 && b[6] < 9 {
		f.header = firstLogHeader
	}
}

// chunk returns the length of the chunk at the beginning of b, 0 if there is none
// or it is damaged, and up to where the log was synced before the chunk.
func (f *logFile) chunk(b []byte) (n int, synced int64) {
	if len(b) < f.header {
		return 0, 0
	}
	least := byte(1) // of the four types
	switch f.header {
	case firstLogHeader:
		least = 5
	case logHeader:
		least = 9
		synced = int64(binary.LittleEndian.Uint64(b[11:]))
	}
	n = f.header + int(binary.LittleEndian.Uint16(b[4:]))
	if b[6] < least || b[6] > least+3 || n > len(b) ||
		f.log && binary.LittleEndian.Uint32(b[7:]) != f.number {
		return 0, 0
	}
	sum := crc32.Checksum(b[6:n], castagnoli)
	if binary.LittleEndian.Uint32(b) != sum>>15|sum<<17+0xa282ead8 {
		return 0, 0
	}
	return n, synced
}

// check reads the file, of which end bytes were synced, and returns ErrCorrupt if
// anything before end is not what Pebble wrote.
//
// What comes after end may be torn. But if a chunk cannot be read, and one after
// it in the same block says that it was synced, that is damage as well. (Pebble
// looks for the same in the blocks that follow, not in this one.)
func (f *logFile) check(r io.Reader, end int64) error {
	block := make([]byte, logBlock)
	for off := int64(0); ; off += logBlock {
		n, err := io.ReadFull(r, block)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
		if off == 0 {
			f.learn(block[:n])
		}
		at, more := f.scan(block[:n], end-off)
		bad := off + int64(at)
		switch {
		case more:
		case bad < end:
			return fmt.Errorf("%w: %s is damaged at byte %d: up to byte %d it was synced",
				ErrCorrupt, f.name, bad, end)
		case f.promised(block[at:n], bad):
			return fmt.Errorf("%w: %s is damaged at byte %d: later records say it was synced",
				ErrCorrupt, f.name, bad)
		default:
			return nil
		}
	}
}

// scan goes through a block's chunks. It returns where the first is that cannot
// be read, or more if all can, and the block is full. The first end bytes were
// synced.
func (f *logFile) scan(block []byte, end int64) (at int, more bool) {
	for logBlock-at >= f.header {
		n, _ := f.chunk(block[at:])
		if n == 0 && f.log && end-int64(at) == logTrailer {
			return min(at+logTrailer, len(block)), false // if damaged, nothing is lost with it
		}
		if n == 0 {
			return at, false
		}
		at += n
	}
	for ; at < len(block); at++ {
		if block[at] != 0 {
			return at, false
		}
	}
	return at, at == logBlock
}

// promised reports whether a chunk somewhere in b says that the log was synced
// beyond bad, where b begins.
func (f *logFile) promised(b []byte, bad int64) bool {
	for i := range b {
		if _, synced := f.chunk(b[i:]); synced > bad {
			return true
		}
	}
	return false
}

// checkLogs makes sure that all that was synced of Pebble's logs and manifests is
// there, before Pebble reads them.
func (d *Disk) checkLogs(known []ledgerLine) error {
	names, err := d.fs.List(d.dir)
	if err != nil {
		return err
	}
	for _, line := range known {
		// A manifest may be listed before its name is durable. Pebble itself
		// misses the one that counts.
		if isLog(line.name) && !slices.Contains(names, line.name) {
			return fmt.Errorf("%w: %s is missing: %d bytes of it were synced",
				ErrCorrupt, line.name, line.end)
		}
	}
	for _, name := range names {
		f, ok := parseLogFile(name)
		if !ok {
			continue
		}
		end := int64(0)
		for _, line := range known {
			if line.name == name {
				end = line.end
			}
		}
		if err := d.checkFile(f, end); err != nil {
			return err
		}
	}
	return nil
}

func (d *Disk) checkFile(f logFile, end int64) error {
	file, err := d.fs.Open(d.fs.PathJoin(d.dir, f.name), vfs.SequentialReadsOption)
	if err != nil {
		return err
	}
	defer ignoreClose(file)
	return f.check(file, end)
}
