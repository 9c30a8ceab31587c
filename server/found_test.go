package server

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"go.etcd.io/raft/v3"

	"leasehold.dev/internal/host"
	"leasehold.dev/internal/storage"
	"leasehold.dev/test/crashfs"
	"leasehold.dev/test/virtual"
)

// A founding that was cut short at any moment, by a kill or by a loss of power, is completed when
// it is tried again. Method: the file system is copied before each change that Found makes.
func TestFoundIsCutShort(t *testing.T) { virtual.Test(t, testFoundIsCutShort) }

func testFoundIsCutShort(t *testing.T) {
	c := testConfig(t.TempDir())
	mem := crashfs.New()
	var mu sync.Mutex
	var copies []*crashfs.FS
	rng := rand.New(rand.NewPCG(1, 2))
	mem.Before = func(op crashfs.Op) error {
		if op.Kind == crashfs.Open || op.Kind == crashfs.Read {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		copies = append(copies, mem.Clone(), mem.Crash(rng))
		return nil
	}
	c.Host = &host.Host{FS: mem}
	if _, _, err := Found(c); err != nil {
		t.Fatal(err)
	}
	completed := 0
	for i, fs := range copies {
		c.Host = &host.Host{FS: fs}
		_, member, err := Found(c)
		if err == nil {
			completed++
		}
		if err != nil && !errors.Is(err, errFounded) {
			t.Fatalf("copy %d of %d: %v", i, len(copies), err)
		}
		disk, err := storage.Open(storage.Config{Dir: c.DataDir, FS: fs})
		if err != nil {
			t.Fatal(err)
		}
		snap, err := disk.Snapshot()
		if id, _ := disk.Identity(); err != nil || raft.IsEmptySnap(snap) || id.Member != member {
			t.Fatalf("copy %d of %d: member %x of %x has the snapshot %v, %v",
				i, len(copies), member, id.Member, snap, err)
		}
		if err := disk.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if completed == 0 || completed == len(copies) {
		t.Errorf("%d of %d were completed", completed, len(copies))
	}
	t.Logf("%d of %d were completed", completed, len(copies))
}

// What one member began to found is not completed with the flags of another.
func TestFoundIsCutShortByAnother(t *testing.T) {
	c := testConfig(t.TempDir())
	onDisk(c)
	disk, err := storage.Open(storage.Config{Dir: c.DataDir})
	if err != nil {
		t.Fatal(err)
	}
	members := founders(c)
	if err := identify(disk, c, members, storage.Identity{}); err != nil {
		t.Fatal(err)
	}
	if err := disk.Close(); err != nil {
		t.Fatal(err)
	}
	other := c
	other.URLs.AdvertisePeer = testConfig(t.TempDir()).URLs.AdvertisePeer
	if _, _, err := Found(other); !errors.Is(err, ErrConfig) {
		t.Errorf("with other peer URLs: %v", err)
	}
	if _, member, err := Found(c); err != nil || member != members[0].ID {
		t.Errorf("member %x, %v", member, err)
	}
}
