package storage_test

import (
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"

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
		fatal(t, d.Append(one(1, 10), hard(0), true))
		cut = true
		if err := d.Append(one(2, 9000), hard(0), true); err == nil {
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
		fatal(t, d.Append(one(last+1, 10), hard(0), true))
		d, err = storage.Open(sweepConfig(left.Crash(rng)))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if at, _ := d.LastIndex(); at != last+1 {
			t.Errorf("seed %d: the log ends at %d, not at %d", seed, at, last+1)
		}
	}
}
