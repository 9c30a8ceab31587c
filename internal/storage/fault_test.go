package storage_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/storage"
	"leasehold.dev/test/crashfs"
)

// TestFailedSyncOfZeros tests two failures in a row. A power failure tears a write of several
// sectors, and the next Open fails to sync the zeros that it writes over them. From then on, reads
// return zeros although the disk still has the old sectors. The following Open must write the zeros
// again, so that another commit and power failure cause no damage.
func TestFailedSyncOfZeros(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 1))
		files := crashfs.New()
		var left *crashfs.FS
		cut := false
		files.Before = func(op crashfs.Op) error {
			if cut && op.Kind == crashfs.Sync {
				left = files.Crash(rng)
				return syscall.EIO
			}
			return nil
		}
		d := open(t, sweepConfig(files))
		fatal(t, d.Append(one(1, 10), hard(0)))
		cut = true
		if err := d.Append(one(2, 9000), hard(0)); err == nil {
			t.Fatal("the write was not torn")
		}
		fails := true
		left.Before = func(op crashfs.Op) error {
			if fails && op.Kind == crashfs.Sync && strings.HasSuffix(op.Name, ".segment") {
				fails = false
				return syscall.EIO
			}
			return nil
		}
		if _, err := storage.Open(sweepConfig(left)); err == nil {
			t.Fatal("Open ignores a failed sync")
		}
		left = left.Clone()
		d, err := storage.Open(sweepConfig(left))
		fatal(t, err)
		last, _ := d.LastIndex()
		fatal(t, d.Append(one(last+1, 10), hard(0)))
		d, err = storage.Open(sweepConfig(left.Crash(rng)))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if at, _ := d.LastIndex(); at != last+1 {
			t.Errorf("seed %d: log ends at %d, want %d", seed, at, last+1)
		}
	}
}

// TestDamagedSegmentFreed checks that a damaged segment no longer needed by the log does not become
// a spare. Otherwise, a later segment would appear to be damaged.
func TestDamagedSegmentFreed(t *testing.T) {
	for block := int64(1); block < smallSegment/4096; block++ {
		files := crashfs.New()
		d := open(t, sweepConfig(files))
		f, err := files.OpenWrite("data/log/0000000000000001.segment")
		fatal(t, err)
		i := uint64(1)
		for ; i < 12; i++ {
			fatal(t, d.Append(one(i, 1000), hard(i)))
		}
		_, err = f.WriteAt([]byte{0xff}, block*4096+100)
		fatal(t, err)
		snapshot(t, d, i-1, i-1)
		for end := i + 14; i < end; i++ {
			fatal(t, d.Append(one(i, 1000), hard(i)))
			opened, err := storage.Open(sweepConfig(files.Clone()))
			if err != nil {
				t.Fatalf("block %d, after entry %d: %v", block, i, err)
			}
			fatal(t, opened.Close())
		}
	}
}

// TestTooManyOpenFiles checks that while the process has too many open files and cannot create a
// spare segment, client commands are rejected as on a full disk. Lease commands can use the rest of
// the current segment, except for the space reserved for votes. Nothing is lost, and writes resume
// later.
func TestTooManyOpenFiles(t *testing.T) {
	files := crashfs.New()
	out := false
	files.Before = func(op crashfs.Op) error {
		if out && op.Kind == crashfs.Create {
			return syscall.EMFILE
		}
		return nil
	}
	c := sweepConfig(files)
	d := open(t, c)
	out = true
	last := fill(d)
	err := d.Append(one(last+1, 100), nil)
	if !errors.Is(err, storage.ErrNoSpace) || d.HasRoom() {
		t.Errorf("without a spare: %v, space %v", err, d.HasRoom())
	}
	fatal(t, d.Append(nil, vote(2)))
	if entries, err := d.Entries(1, last+1, 1<<20); err != nil || len(entries) == 0 {
		t.Errorf("%d entries, %v", len(entries), err)
	}
	out = false
	fatal(t, d.Append(one(last+1, 2*smallSegment), nil))
	fatal(t, d.Close())
	d = open(t, c)
	if at, _ := d.LastIndex(); at != last+1 {
		t.Errorf("log ends at %d, want %d", at, last+1)
	}
	fatal(t, d.Close())
}

// TestSpareIsRetried checks that a failed attempt to create a spare is retried a second later.
func TestSpareIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		files := crashfs.New()
		var fail atomic.Bool
		files.Before = func(op crashfs.Op) error {
			if op.Kind == crashfs.Create && fail.CompareAndSwap(true, false) {
				return syscall.EMFILE
			}
			return nil
		}
		d := open(t, storage.Config{Dir: "data", FS: files, SegmentBytes: smallSegment})
		synctest.Wait()
		fail.Store(true)
		refused := 0
		for i := uint64(1); i < 20; {
			err := d.Append(one(i, 1000), nil)
			synctest.Wait()
			switch {
			case err == nil:
				i++
			case errors.Is(err, storage.ErrNoSpace) && refused < 20:
				refused++
				time.Sleep(100 * time.Millisecond) // fake time
			default:
				t.Fatal(err)
			}
		}
		if refused == 0 || refused > 11 {
			t.Errorf("refused for %d tenths of a second", refused)
		}
		fatal(t, d.Close())
	})
}

// fill appends entries to a full disk until even reserved entries are rejected, and returns the
// index of the last entry.
func fill(d *storage.Disk) (last uint64) {
	for d.Append(one(last+1, 100), nil) == nil {
		last++
	}
	for d.AppendReserved(one(last+1, 100), nil) == nil {
		last++
	}
	return last
}

func vote(term uint64) *raftpb.HardState {
	return &raftpb.HardState{Term: &term, Vote: new(uint64(2)), Commit: new(uint64(0))}
}

// TestSnapshotOnFullDisk checks that even without space for a vote, a full disk accepts a received
// snapshot that replaces the log, and a snapshot of its own that compacts the log. Each makes space
// for new entries.
func TestSnapshotOnFullDisk(t *testing.T) {
	for _, received := range []bool{true, false} {
		files := crashfs.New()
		d := open(t, sweepConfig(files))
		files.Limit(files.Used())
		last, term := fill(d), uint64(2)
		for d.Append(nil, vote(term)) == nil {
			term++
		}
		files.Limit(files.Used() + 8000)
		index := last
		if received {
			index += 10
		}
		snapshot(t, d, index, index)
		fatal(t, d.Append(one(index+1, 100), nil))
		fatal(t, d.Close())
		d = open(t, sweepConfig(files))
		if at, _ := d.LastIndex(); at != index+1 {
			t.Errorf("log ends at %d, want %d", at, index+1)
		}
		fatal(t, d.Close())
	}
}

// TestSettleOnFullDisk checks that the empty commit after the last commit is written even on a full
// disk, as long as the last segment has space.
func TestSettleOnFullDisk(t *testing.T) {
	files := crashfs.New()
	c := sweepConfig(files)
	c.SegmentBytes = 64 * 4096
	d := open(t, c)
	files.Limit(files.Used())
	last := uint64(0)
	for d.Append(one(last+1, 100), nil) == nil {
		last++
	}
	fatal(t, d.AppendReserved(one(last+1, 100), nil))
	all := contents(t, files)
	name := newest(all)
	at := len(all[name]) - 4096
	for all[name][at] == 0 {
		at -= 4096
	}
	fatal(t, d.AddEmpty())
	files.Limit(0)
	b := contents(t, files)[name]
	clear(b[at : at+4096])
	put(t, files, name, b)
	if _, err := storage.Open(sweepConfig(files.Clone())); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("lost block of an acknowledged entry: %v", err)
	}
}

// TestRestartsOnFullDisk checks that restarts do not use the space reserved for votes on a full
// disk.
func TestRestartsOnFullDisk(t *testing.T) {
	files := crashfs.New()
	c := sweepConfig(files)
	d := open(t, c)
	files.Limit(files.Used())
	fill(d)
	for range 50 {
		fatal(t, d.Close())
		d = open(t, c)
	}
	fatal(t, d.Append(nil, vote(2)))
}

// TestIdentityIsDurable checks a Bootstrap that fails before the identity's directory entry is
// durable. The next Open must sync the directory before it writes to the log, so that no log exists
// without an identity.
func TestIdentityIsDurable(t *testing.T) {
	files := crashfs.New()
	files.Before = func(op crashfs.Op) error {
		if op.Kind == crashfs.SyncDir && op.Name == "data" {
			return syscall.EIO
		}
		return nil
	}
	d, err := storage.Open(sweepConfig(files))
	fatal(t, err)
	if err := d.Bootstrap(testID, &raftpb.ConfState{}); !errors.Is(err, syscall.EIO) {
		t.Fatalf("error %v", err)
	}
	left, synced := files.Clone(), false
	left.Before = func(op crashfs.Op) error {
		synced = synced || op.Kind == crashfs.SyncDir && op.Name == "data"
		if op.Kind == crashfs.Write && !synced {
			t.Errorf("%s was written before the directory was synced", op.Name)
		}
		return nil
	}
	d = open(t, sweepConfig(left))
	fatal(t, d.Close())
	if !synced {
		t.Error("the directory was not synced")
	}
}

// TestBootstrapSyncsParents checks that the directory entries of the data directory and its parents
// are durable before the identity is written, even if they existed before. A parent may be
// unreadable.
func TestBootstrapSyncsParents(t *testing.T) {
	files := crashfs.New()
	synced := map[string]bool{}
	files.Before = func(op crashfs.Op) error {
		switch {
		case op.Kind == crashfs.SyncDir:
			synced[op.Name] = true
		case op.Kind == crashfs.Open && op.Name == "top/secret":
			return syscall.EACCES
		case op.Kind == crashfs.Rename && op.Name == "top/secret/parent/data/identity":
			if !synced["top"] || !synced["top/secret/parent"] {
				t.Errorf("the identity was written after the sync of %v", synced)
			}
		}
		return nil
	}
	c := sweepConfig(files)
	c.Dir = "top/secret/parent/data"
	fatal(t, open(t, c).Close())
	if len(synced) == 0 {
		t.Error("nothing was synced")
	}
}

// noFiles returns a file system that cannot open or create files while on is set.
func noFiles(on *bool, err error) *crashfs.FS {
	files := crashfs.New()
	files.Before = func(op crashfs.Op) error {
		if *on && (op.Kind == crashfs.Create || op.Kind == crashfs.Open) {
			return err
		}
		return nil
	}
	return files
}

// TestLargeSegmentKeepsVotes checks that a segment enlarged for one commit reserves space for votes
// like any other segment.
func TestLargeSegmentKeepsVotes(t *testing.T) {
	var full bool
	d := open(t, sweepConfig(noFiles(&full, syscall.ENOSPC)))
	full = true
	fatal(t, d.Append(one(1, 2*smallSegment), nil))
	last := uint64(1)
	for d.AppendReserved(one(last+1, 100), nil) == nil {
		last++
	}
	fatal(t, d.Append(nil, vote(2)))
}

// TestVotesWhileSpareIsMade checks that entries do not use the space reserved for votes while a
// spare is being created, because that may fail.
func TestVotesWhileSpareIsMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		files, hung := crashfs.New(), make(chan struct{})
		var hangs atomic.Bool
		files.Before = func(op crashfs.Op) error {
			if hangs.Load() && op.Kind == crashfs.Create {
				<-hung
				return syscall.ENOSPC
			}
			return nil
		}
		d := open(t, storage.Config{Dir: "data", FS: files, SegmentBytes: smallSegment})
		synctest.Wait()
		hangs.Store(true)
		refused := make(chan error)
		go func() {
			for i := uint64(1); ; i++ {
				if err := d.Append(one(i, 100), nil); err != nil {
					refused <- err
					return
				}
			}
		}()
		synctest.Wait()
		close(hung)
		if err := <-refused; !errors.Is(err, storage.ErrNoSpace) {
			t.Error(err)
		}
		fatal(t, d.Append(nil, vote(2)))
		fatal(t, d.Close())
	})
}

// TestSnapshotWithoutFiles checks that a received snapshot is installed even if the process cannot
// open files.
func TestSnapshotWithoutFiles(t *testing.T) {
	var out bool
	d := open(t, sweepConfig(noFiles(&out, syscall.EMFILE)))
	w, err := d.NewSnapshot(storage.SnapshotMeta{Index: 9, Term: 1, ConfState: &raftpb.ConfState{}})
	fatal(t, err)
	fatal(t, w.Write([]byte("state")))
	fatal(t, w.Finish())
	out = true
	fatal(t, w.Commit(0))
}

// TestOpenOnFullDisk checks that if there is no space to overwrite existing data, as can happen on
// a thinly provisioned disk, the disk is treated as full and not as broken.
func TestOpenOnFullDisk(t *testing.T) {
	files := crashfs.New()
	d := open(t, sweepConfig(files))
	fatal(t, d.Append(one(1, 100), nil))
	left := files.Clone()
	left.Before = func(op crashfs.Op) error {
		if op.Kind == crashfs.Write {
			return syscall.ENOSPC
		}
		return nil
	}
	if _, err := storage.Open(sweepConfig(left)); !errors.Is(err, storage.ErrNoSpace) ||
		errors.Is(err, storage.ErrFailed) || !strings.Contains(err.Error(), "free some space") {
		t.Error(err)
	}
}

// TestSpareIsKept checks that a spare is not removed if it cannot be opened for lack of file
// descriptors.
func TestSpareIsKept(t *testing.T) {
	files := crashfs.New()
	d := open(t, sweepConfig(files))
	fatal(t, d.Close())
	before, err := files.List("data/log")
	fatal(t, err)
	for n := range 12 {
		left, opened := files.Clone(), 0
		left.Before = func(op crashfs.Op) error {
			if op.Kind == crashfs.Open || op.Kind == crashfs.Create {
				if opened++; opened > n {
					return syscall.EMFILE
				}
			}
			return nil
		}
		if _, err := storage.Open(sweepConfig(left)); err != nil && !errors.Is(err, storage.ErrNoSpace) {
			t.Errorf("after %d files: %v", n, err)
		}
		after, err := left.List("data/log")
		fatal(t, err)
		for _, name := range before {
			if !slices.Contains(after, name) {
				t.Errorf("after %d files: %s was removed", n, name)
			}
		}
	}
}

// TestLostSeal checks that Open detects the loss of a segment's seal. Any intact sector of the next
// segment's first commit proves that the seal existed.
func TestLostSeal(t *testing.T) {
	files := crashfs.New()
	d := open(t, sweepConfig(files))
	for i := uint64(1); ; i++ {
		fatal(t, d.Append(one(i, 2000), nil))
		if all := contents(t, files); strings.Contains(newest(all), "2.segment") {
			break
		}
	}
	all := contents(t, files)
	last := newest(all)
	sealed := "data/log/0000000000000001.segment"
	torn := make([]byte, len(all[last]))
	copy(torn[512:1024], all[last][512:])
	put(t, files, last, torn)
	if _, err := storage.Open(sweepConfig(files.Clone())); err != nil {
		t.Fatalf("torn first commit: %v", err)
	}
	at := len(all[sealed]) - 4096
	for all[sealed][at] == 0 {
		at -= 4096
	}
	clear(all[sealed][at : at+4096])
	put(t, files, sealed, all[sealed])
	if _, err := storage.Open(sweepConfig(files.Clone())); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("lost seal: %v", err)
	}
}

// TestUnreadableSegment checks that an unreadable segment is not replaced as if it were a spare,
// even if it looks like one. The previous segment's seal may have been lost.
func TestUnreadableSegment(t *testing.T) {
	files := crashfs.New()
	d := open(t, sweepConfig(files))
	fatal(t, d.Append(one(1, 100), nil))
	before := contents(t, files)
	for number := 1; number <= 2; number++ {
		left := files.Clone()
		left.Before = func(op crashfs.Op) error {
			if op.Kind == crashfs.Read && strings.HasSuffix(op.Name, fmt.Sprint(number, ".segment")) {
				return syscall.EIO
			}
			return nil
		}
		_, err := storage.Open(sweepConfig(left))
		if !errors.Is(err, storage.ErrFailed) || !errors.Is(err, syscall.EIO) {
			t.Errorf("segment %d: %v", number, err)
		}
		left.Before = nil
		if after := contents(t, left); !maps.EqualFunc(before, after, bytes.Equal) {
			t.Errorf("segment %d: the directory changed", number)
		}
	}
}

// TestNoDirect checks the two errors with which file systems report that they do not support direct
// writes. Any other error means a broken disk.
func TestNoDirect(t *testing.T) {
	for _, err := range []error{syscall.EINVAL, syscall.EOPNOTSUPP} {
		if !storage.NoDirect(&fs.PathError{Op: "open", Err: err}) {
			t.Errorf("%v counts as a broken disk", err)
		}
	}
	if storage.NoDirect(syscall.EIO) {
		t.Error("EIO counts as missing direct writes")
	}
}

// TestUnreadableOnlySegment tests a directory whose only segment with commits cannot be read, after
// a snapshot replaced the earlier segments. The error must name the unreadable segment. It must not
// report a missing segment, which would suggest data loss.
func TestUnreadableOnlySegment(t *testing.T) {
	files := crashfs.New()
	d := open(t, sweepConfig(files))
	last := uint64(0)
	for d.Segment() < 3 {
		last++
		fatal(t, d.Append(one(last, 1000), nil))
	}
	snapshot(t, d, last, last)
	number := d.Segment()
	files.Before = func(op crashfs.Op) error {
		if op.Kind == crashfs.Read && strings.HasSuffix(op.Name, fmt.Sprint(number, ".segment")) {
			return syscall.EIO
		}
		return nil
	}
	fatal(t, d.Close())
	_, err := storage.Open(sweepConfig(files))
	if !errors.Is(err, storage.ErrFailed) || !errors.Is(err, syscall.EIO) {
		t.Errorf("error %v; want ErrFailed with EIO", err)
	}
}

// TestPassingErrorOfSpare checks that a transient error while a spare is created puts no
// acknowledged data at risk. The member rejects client commands as on a full disk, and resumes once
// it can create a spare.
func TestPassingErrorOfSpare(t *testing.T) {
	for name, kind := range map[string]crashfs.Kind{
		"create": crashfs.Create, "sync": crashfs.Sync, "directory": crashfs.SyncDir,
	} {
		t.Run(name, func(t *testing.T) {
			files := crashfs.New()
			d := open(t, sweepConfig(files))
			spare := fmt.Sprintf("data/log/%016d.segment", d.Segment()+2)
			broken := true
			files.Before = func(op crashfs.Op) error {
				if broken && op.Kind == kind && (op.Name == spare || op.Name == "data/log") {
					return syscall.EIO
				}
				return nil
			}
			last := uint64(0)
			var err error
			for ; err == nil && last < 20; last++ {
				err = d.Append(one(last+1, 1000), nil)
			}
			last--
			if !errors.Is(err, storage.ErrNoSpace) || !errors.Is(err, syscall.EIO) || d.HasRoom() {
				t.Fatalf("while no spare can be made: %v, room %v", err, d.HasRoom())
			}
			for err = nil; err == nil; {
				if err = d.AppendReserved(one(last+1, 1000), nil); err == nil {
					last++
				}
			}
			if !errors.Is(err, storage.ErrNoSpace) {
				t.Fatalf("without a next segment: %v", err)
			}
			broken = false
			fatal(t, d.Append(one(last+1, 1000), nil))
			fatal(t, d.Close())
			d = open(t, sweepConfig(files))
			if at, _ := d.LastIndex(); at != last+1 {
				t.Errorf("log ends at %d, want %d", at, last+1)
			}
			fatal(t, d.Close())
		})
	}
}

// TestPassingErrorOfLargeSegment checks the same for a segment that is enlarged for one commit.
func TestPassingErrorOfLargeSegment(t *testing.T) {
	files := crashfs.New()
	d := open(t, sweepConfig(files))
	spare := fmt.Sprintf("data/log/%016d.segment", d.Segment()+1)
	broken := true
	files.Before = func(op crashfs.Op) error {
		if broken && op.Kind == crashfs.Sync && op.Name == spare {
			return syscall.EIO
		}
		return nil
	}
	if err := d.Append(one(1, 2*smallSegment), nil); !errors.Is(err, storage.ErrNoSpace) {
		t.Errorf("error %v", err)
	}
	broken = false
	fatal(t, d.Append(one(1, 2*smallSegment), nil))
	fatal(t, d.Close())
}

// TestSnapshotNameIsUncertain checks that nothing more is written after the rename of a snapshot,
// or the following sync of the directory, has failed. Another sync could not show whether the new
// name is durable.
func TestSnapshotNameIsUncertain(t *testing.T) {
	for _, kind := range []crashfs.Kind{crashfs.Rename, crashfs.SyncDir} {
		files := crashfs.New()
		d := open(t, sweepConfig(files))
		fatal(t, d.Append(one(1, 10), hard(1)))
		w, err := d.NewSnapshot(storage.SnapshotMeta{Index: 1, Term: 1, ConfState: &raftpb.ConfState{}})
		fatal(t, err)
		fatal(t, w.Write([]byte("state")))
		broken := true
		files.Before = func(op crashfs.Op) error {
			if broken && op.Kind == kind {
				return syscall.EIO
			}
			return nil
		}
		if err := w.Commit(1); !errors.Is(err, storage.ErrFailed) || !errors.Is(err, syscall.EIO) {
			t.Errorf("kind %d: %v", kind, err)
		}
		broken = false
		if err := d.Append(one(2, 10), nil); !errors.Is(err, storage.ErrFailed) {
			t.Errorf("kind %d: append after the failure: %v", kind, err)
		}
		_ = d.Close()
		d = open(t, sweepConfig(files))
		if last, _ := d.LastIndex(); last != 1 {
			t.Errorf("kind %d: log ends at %d", kind, last)
		}
		fatal(t, d.Close())
	}
}

// TestLostIdentity checks that if the identity is missing and a segment is unreadable or damaged,
// Open returns an error. It must not initialize the directory again, which would overwrite the
// segment.
func TestLostIdentity(t *testing.T) {
	for _, unreadable := range []bool{true, false} {
		files := crashfs.New()
		d := open(t, sweepConfig(files))
		fatal(t, d.Append(one(1, 100), hard(1)))
		fatal(t, d.Close())
		const name = "data/log/0000000000000001.segment"
		fatal(t, files.Remove("data/identity"))
		if !unreadable {
			f, err := files.OpenWrite(name)
			fatal(t, err)
			_, err = f.WriteAt([]byte{0xff}, 100)
			fatal(t, err)
		}
		files.Before = func(op crashfs.Op) error {
			if unreadable && op.Kind == crashfs.Read && op.Name == name {
				return syscall.EIO
			}
			return nil
		}
		_, err := storage.Open(sweepConfig(files))
		if unreadable && !errors.Is(err, syscall.EIO) || !unreadable && !errors.Is(err, storage.ErrCorrupt) {
			t.Errorf("unreadable %v: error %v", unreadable, err)
		}
	}
}
