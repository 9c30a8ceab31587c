package storage

import (
	"errors"
	"math"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	// Zeros are written in chunks. The writer of the log waits for one chunk at
	// most, and so does Close.
	maxZeroChunk = 128 << 10
	minZeroChunk = 4 << 10 // a block of most file systems

	// As many chunks are made durable at once, and as many at least are kept
	// between the log's end and the end of the zeros, twice as many at most. A
	// sync of the log beside them takes longer. With 12 KB a sync and no pause, the
	// 99th percentile was 320 us with these 1 MiB, 310 us with 256 KiB, 160 to
	// 300 us with all zeros there before, and 280 to 380 us without any.
	zeroPiece = 8
	zeroAhead = 2 * zeroPiece

	// noChunk is where the chunk being written begins when there is none.
	noChunk = math.MaxInt64
)

// zeroBytes is what a chunk is written from.
var zeroBytes [maxZeroChunk]byte

// zeros writes zeros ahead of the end of one log file, in the space that was
// reserved for it. Space that is only reserved costs the log a commit of the file
// system's journal with every sync that gets to a new block, because the file
// system must note that the block now holds something. On ext4 here a sync then
// takes 160 us; in blocks that were written before, 100 us. Pebble recycles its
// log files, so that an old member writes over old blocks anyway, but a member
// begins with a new file whenever it starts.
//
// What the file reads as never changes by it. That is the whole argument for
// crashes: whichever of the zeros a power cut leaves on disk, the bytes there
// read as zeros, as they would without, and Pebble takes them for the end of its
// log. It rests on this, which mu guards:
//
//   - No byte from frontier on that is also at or after claimed was ever written
//     by Pebble, in this use of the file or, if it is recycled, in an earlier
//     one. New files begin with a frontier of 0, recycled ones with what close
//     kept.
//   - Pebble raises claimed before it writes, and raises it over no chunk that
//     is being written: it waits until that chunk is written. A chunk begins at
//     or after claimed and frontier. So no write of Pebble's is under way or done
//     where a chunk is written, and it writes over the zeros later if at all.
//
// When Pebble catches up, the zeros are begun anew one chunk further on, and what
// is between is left to Pebble.
//
// The zeros have an open file of their own. An error of writing back is told once
// to each open file; told to this goroutine through Pebble's, it would be kept
// from Pebble's next sync, which would take for durable what is not. The same
// error comes up there, so nothing is gained by going on after a failed sync of
// zeros: it fails the guard as any other. So does a failed write, since the log
// is going to need that very block, unless it failed for want of space. That ends
// the zeros for this file, nothing else: reserved space should not run out, but
// some file systems copy on write.
type zeros struct {
	guard *guard
	name  string
	wake  chan struct{} // buffered: there may be something to do
	quit  chan struct{} // closed by close
	done  chan struct{} // closed at the end of run; nil before reserve

	mu       sync.Mutex
	idle     sync.Cond // no chunk is being written
	claimed  int64     // end of the furthest write of Pebble's that has begun
	frontier int64     // see above
	chunk    int64     // where the chunk being written begins, or noChunk
	limit    int64     // end of the reserved space
	size     int64     // of a chunk
}

// newZeros returns the zeros of a log file of which nothing from frontier on was
// ever written. They begin when space is reserved.
func newZeros(g *guard, name string, frontier int64) *zeros {
	z := &zeros{
		guard: g, name: name, frontier: frontier, chunk: noChunk,
		wake: make(chan struct{}, 1), quit: make(chan struct{}),
	}
	z.idle.L = &z.mu
	return z
}

// reserve says that the file has space up to limit, which reads as zeros from
// frontier on. The caller holds g.writing for reading, and the guard has not
// failed.
func (z *zeros) reserve(limit int64) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.limit = max(z.limit, limit)
	size := z.limit / 128 // small logs have small chunks
	z.size = min(max(size-size%minZeroChunk, minZeroChunk), maxZeroChunk)
	if z.done == nil && z.frontier < z.limit {
		z.done = make(chan struct{})
		z.guard.zeroing.Go(z.run)
	}
}

// claim is called before Pebble writes up to end, and waits while zeros are being
// written there.
func (z *zeros) claim(end int64) {
	z.mu.Lock()
	for z.chunk < end {
		z.idle.Wait()
	}
	z.claimed = max(z.claimed, end)
	short := z.shortLocked()
	z.mu.Unlock()
	// Open needs the disk for itself; the first Append after it comes by here.
	if short && !z.guard.strict.Load() {
		select {
		case z.wake <- struct{}{}:
		default:
		}
	}
}

// shortLocked reports whether there is room for another piece of zeros before
// they are far enough ahead.
func (z *zeros) shortLocked() bool {
	ahead := z.claimed + (zeroAhead-zeroPiece)*z.size
	return z.frontier <= ahead && z.frontier < z.limit
}

func (z *zeros) short() bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.shortLocked()
}

// take begins a chunk and returns where and how long it is, 0 if there is no more
// room. The caller must give it back.
func (z *zeros) take() (begin, n int64) {
	z.mu.Lock()
	defer z.mu.Unlock()
	begin = z.frontier
	if begin < z.claimed {
		begin = roundUp(z.claimed) + z.size // or Pebble would wait for it at once
	}
	if n = min(z.size, z.limit-begin); n <= 0 {
		z.frontier = z.limit // or there would be something to do for ever
		return begin, 0
	}
	z.chunk, z.frontier = begin, begin+n
	return begin, n
}

// roundUp returns the next whole block, so that no chunk begins in a block with
// bytes of the log.
func roundUp(n int64) int64 { return (n + minZeroChunk - 1) &^ (minZeroChunk - 1) }

func (z *zeros) give() {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.chunk = noChunk
	z.idle.Broadcast()
}

// run writes zeros whenever the log's end has come near theirs, until close, a
// failure or abandon.
func (z *zeros) run() {
	defer close(z.done)
	var f vfs.File
	for z.wait() {
		if f == nil {
			if f = z.open(); f == nil {
				return
			}
			defer ignoreClose(f)
		}
		for z.short() {
			if !z.piece(f) {
				return
			}
		}
	}
}

// wait reports whether to go on, when there may be something to do.
func (z *zeros) wait() bool {
	select {
	case <-z.wake:
		return true
	case <-z.quit:
	case <-z.guard.failed:
	}
	return false
}

// open returns the file as another open file, or nil: then there are no zeros.
// It cannot make a new one, since nobody removes a log that is being written.
func (z *zeros) open() (f vfs.File) {
	_ = z.guard.aside(func() (err error) {
		f, err = z.guard.FS.OpenReadWrite(z.name, "pebble-wal")
		return err
	})
	return f
}

// piece writes some chunks and makes them durable. It reports whether to go on.
func (z *zeros) piece(f vfs.File) bool {
	for range zeroPiece {
		select {
		case <-z.quit:
			return false // what was written is left to the kernel
		default:
		}
		begin, n := z.take()
		if n == 0 {
			break
		}
		err := z.guard.aside(func() error {
			_, err := f.WriteAt(zeroBytes[:n], begin)
			return err
		})
		z.give()
		if isFull(err) || !z.check(err) {
			return false
		}
		// Started now, writing back is some small writes to the disk, between
		// which those of the log have their turn, and not one large one: with that
		// alone, the percentile above was 540 us and more.
		err = z.guard.aside(func() error {
			_, err := f.SyncTo(begin + n)
			return err
		})
		if !z.check(err) {
			return false
		}
	}
	return z.check(z.guard.aside(f.SyncData))
}

// check reports whether err is nil, and fails the guard if it is the disk's.
func (z *zeros) check(err error) bool {
	if err != nil {
		z.guard.blame("write zeros to", z.name, err)
	}
	return err == nil
}

// close ends the zeros, and waits until none is being written. The guard keeps
// how far the file was ever written.
func (z *zeros) close() {
	close(z.quit)
	z.mu.Lock()
	done := z.done
	z.mu.Unlock()
	if done != nil {
		<-done
	}
	z.mu.Lock()
	limit, end := z.limit, roundUp(max(z.claimed, z.frontier))
	z.mu.Unlock()
	if limit > 0 {
		z.guard.mu.Lock()
		z.guard.ends[z.name] = end
		z.guard.mu.Unlock()
	}
}

// isLog reports whether a file is one of Pebble's logs.
func isLog(name string) bool { return strings.HasSuffix(name, ".log") }

// An extender is a file that can reserve space as part of its size by itself. It
// then reads as zeros. Files of the operating system need not be one.
type extender interface {
	Extend(offset, length int64) error
}

// reserve reserves space as part of the file's size, where that is possible.
func reserve(f vfs.File, offset, length int64) error {
	if e, ok := f.(extender); ok {
		return e.Extend(offset, length)
	}
	if fd := f.Fd(); fd != vfs.InvalidFd {
		return extend(fd, offset, length)
	}
	return errors.ErrUnsupported
}
