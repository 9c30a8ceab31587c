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

// TestFailedSyncOfZeros: a loss of power tears a write of several sectors, and the next Open fails
// to sync the zeros in their place. From then on the kernel shows zeros where the disk has those
// sectors. The Open after that writes the zeros again, so the directory stays sound after one more
// commit and one more loss of power.
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
			t.Fatal("Open passes over a failed sync")
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
			t.Errorf("seed %d: the log ends at %d, not at %d", seed, at, last+1)
		}
	}
}

// TestDamagedSegmentFreed: a bit of a segment rots, and then the log no longer needs the segment. It
// does not become a spare, so that it makes no later segment look damaged.
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

// TestTooManyOpenFiles: as long as the process has too many files open, no spare segment can be
// made. Then clients are refused, as on a full disk; leases use up the current segment, votes the
// rest. Nothing is lost, and all goes on when there are files again.
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
		t.Errorf("without a spare: %v, room %v", err, d.HasRoom())
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
		t.Errorf("the log ends at %d, not at %d", at, last+1)
	}
	fatal(t, d.Close())
}

// TestSpareIsMadeAgain: one attempt to make a spare fails because the process has too many files
// open. A second later the next one succeeds.
func TestSpareIsMadeAgain(t *testing.T) {
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
				time.Sleep(100 * time.Millisecond) // of the bubble
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

// fill appends entries to a full disk until both kinds of entries are refused, and returns the
// index of the last one.
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

// TestSnapshotOnFullDisk: when a full disk has no room for a vote either, a snapshot that replaces
// the log is still taken, and so are one of the member itself and a compaction. Each of them makes
// room for entries.
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
			t.Errorf("the log ends at %d, not at %d", at, index+1)
		}
		fatal(t, d.Close())
	}
}

// TestSettlesOnFullDisk: while the last segment has room, an empty commit follows the last one on a
// full disk too, so that a lost block of the last one is found.
func TestSettlesOnFullDisk(t *testing.T) {
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
		t.Errorf("a lost block of an entry that was acknowledged: %v", err)
	}
}

// TestRestartsOnFullDisk: restarts leave the room on a full disk to votes.
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

// TestIdentityIsDurable: Bootstrap ends before the name of the identity is durable. The next Open sees
// it and makes it durable, before the log gets anything that would be without an identity.
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
			t.Errorf("%s is written first", op.Name)
		}
		return nil
	}
	d = open(t, sweepConfig(left))
	fatal(t, d.Close())
	if !synced {
		t.Error("the directory is not synced")
	}
}

// TestBootstrapSyncsParents: the names of the data directory and of its parents are durable before the
// member has an identity, also if they were there before. One of them may be unreadable.
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
				t.Errorf("the identity is written after the sync of %v", synced)
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

// noFiles makes a file system that opens and creates nothing while on is set.
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

// TestLargeSegmentKeepsVotes: a segment that was made larger for one commit keeps room for votes, as
// all others do.
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

// TestVotesWhileSpareIsMade: entries leave the room for votes also while a spare is being made, which
// then fails.
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

// TestSnapshotWithoutFiles: a snapshot that has arrived is installed while the process can open no
// file.
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

// TestOpenOnFullDisk: a disk that has no block left even for what is overwritten, as one that is
// thinly provisioned, is full and not broken.
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

// TestSpareIsKept: a spare that cannot be opened for want of file descriptors is not removed.
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
				t.Errorf("after %d files: %s is gone", n, name)
			}
		}
	}
}

// TestLostSeal: the disk loses the seal of a segment. A sector of the first commit in the next one
// shows that the seal was there, also if the rest of that commit is not.
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
		t.Fatalf("a torn first commit: %v", err)
	}
	at := len(all[sealed]) - 4096
	for all[sealed][at] == 0 {
		at -= 4096
	}
	clear(all[sealed][at : at+4096])
	put(t, files, sealed, all[sealed])
	if _, err := storage.Open(sweepConfig(files.Clone())); !errors.Is(err, storage.ErrCorrupt) {
		t.Errorf("a lost seal: %v", err)
	}
}

// TestUnreadableSegment: a segment that cannot be read is not taken for a spare and replaced, even if it
// looks like one: the disk may have lost the seal of the segment before it.
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
			t.Errorf("segment %d: the directory has changed", number)
		}
	}
}

// TestNoDirect: file systems without writes past the page cache say so in two ways. Any other error
// of the disk is one.
func TestNoDirect(t *testing.T) {
	for _, err := range []error{syscall.EINVAL, syscall.EOPNOTSUPP} {
		if !storage.NoDirect(&fs.PathError{Op: "open", Err: err}) {
			t.Errorf("%v is an error of the disk", err)
		}
	}
	if storage.NoDirect(syscall.EIO) {
		t.Error("a broken disk is taken for one without direct writes")
	}
}

// TestUnreadableOnlySegment: the one segment that has commits cannot be read, and those before it
// are gone because a snapshot has their entries. Open says that it cannot be read, and not that an
// earlier one is missing, which would mean that data are lost.
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

// TestPassingErrorOfSpare: while a spare is made, the disk has an error that passes. Nothing that was
// acknowledged is at risk, so the member refuses clients as on a full disk, and goes on once a spare
// can be made.
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
				t.Errorf("the log ends at %d, not at %d", at, last+1)
			}
			fatal(t, d.Close())
		})
	}
}

// TestPassingErrorOfLargeSegment: the same while a segment is made larger for one commit.
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

// TestSnapshotNameIsUncertain: the rename of a snapshot fails, or the sync of the directory after it.
// Another sync would not find out whether the name is durable, so nothing is written any more.
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
			t.Errorf("kind %d: an append after it: %v", kind, err)
		}
		_ = d.Close()
		d = open(t, sweepConfig(files))
		if last, _ := d.LastIndex(); last != 1 {
			t.Errorf("kind %d: the log ends at %d", kind, last)
		}
		fatal(t, d.Close())
	}
}

// TestLostIdentity: the identity is gone, and the only segment cannot be read, or its first sector is
// damaged. The directory is not founded anew over what the segment has.
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
