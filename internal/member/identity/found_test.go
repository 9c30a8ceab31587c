package identity

import (
	"errors"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"sync"
	"testing"

	"go.etcd.io/raft/v3"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/storage"
	"leasehold.dev/internal/transport"
	"leasehold.dev/internal/version"
	"leasehold.dev/test/crashfs"
)

// config returns the configuration of a member that founds a single-member cluster with an
// in-memory disk.
func config() Config {
	peer := []url.URL{{Scheme: "http", Host: "a:1"}}
	return Config{
		Name: "a", DataDir: "/data", Initial: map[string][]url.URL{"a": peer}, AdvertisePeer: peer,
		Token: "t", Files: crashfs.New(), Logger: slog.New(slog.DiscardHandler),
		Machine: fsm.Config{Versions: version.Spoken, Async: Async},
	}
}

// openDisk opens the disk of a member.
func openDisk(t *testing.T, c Config) *storage.Disk {
	t.Helper()
	disk, err := storage.Open(storage.Config{Dir: c.DataDir, FS: c.Files})
	if err != nil {
		t.Fatal(err)
	}
	return disk
}

// TestFoundingIsRepeatable checks that after a crash between writing the identity and the first
// snapshot, the next start founds the same cluster.
func TestFoundingIsRepeatable(t *testing.T) {
	c := config()
	disk := openDisk(t, c)
	if err := identify(disk, c, founders(c), storage.Identity{}); err != nil {
		t.Fatal(err)
	}
	id, _ := disk.Identity()
	if err := disk.Close(); err != nil { // the founding stops here
		t.Fatal(err)
	}
	b, err := Open(c, transport.Way{})
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := b.Disk.Identity(); got != id {
		t.Errorf("founded %+v, then %+v", id, got)
	}
	if b.Machine.Index() != FirstIndex {
		t.Errorf("the state is at index %d", b.Machine.Index())
	}
	if err := b.Disk.Close(); err != nil {
		t.Error(err)
	}
}

// TestFoundersStartWithSameState checks that founders start with the same state even if they list
// the URLs of a founder in different orders. IDs do not depend on the order, but a member whose
// state differs would have to stop.
func TestFoundersStartWithSameState(t *testing.T) {
	one, other := url.URL{Scheme: "http", Host: "h:1"}, url.URL{Scheme: "http", Host: "h:2"}
	var states [2]uint32
	for i, urls := range [][]url.URL{{one, other}, {other, one}} {
		c := config()
		c.Initial = map[string][]url.URL{"a": urls}
		m := fsm.New(c.Machine)
		for _, n := range founders(c) {
			m.AddMember(n)
		}
		var err error
		if states[i], err = m.Image().Hash(); err != nil {
			t.Fatal(err)
		}
	}
	if states[0] != states[1] {
		t.Errorf("the hashes of their first states are %x", states)
	}
}

// TestFoundersOfOtherNames checks that founders configured with different names found different
// clusters, because their states would differ.
func TestFoundersOfOtherNames(t *testing.T) {
	var ids [2]uint64
	for i, name := range []string{"b", "other"} {
		c := config()
		c.Initial = map[string][]url.URL{
			"a": {{Scheme: "http", Host: "h:1"}}, name: {{Scheme: "http", Host: "h:2"}},
		}
		ids[i] = c.clusterID(founders(c), 0)
	}
	if ids[0] == ids[1] {
		t.Errorf("both found cluster %x", ids[0])
	}
}

// TestFoundInterrupted checks that a founding interrupted at any point, by a kill or a power loss,
// completes when it is retried. The file system is copied before each change that Found makes.
func TestFoundInterrupted(t *testing.T) {
	c, mem := config(), crashfs.New()
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
	c.Files = mem
	if _, _, err := Found(c); err != nil {
		t.Fatal(err)
	}
	completed := 0
	for i, fs := range copies {
		c.Files = fs
		_, member, err := Found(c)
		if err == nil {
			completed++
		}
		if err != nil && !errors.Is(err, ErrFounded) {
			t.Fatalf("copy %d of %d: %v", i, len(copies), err)
		}
		disk := openDisk(t, c)
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

// TestFoundInterruptedByAnother checks that a founding that one member started is not completed
// with another member's flags.
func TestFoundInterruptedByAnother(t *testing.T) {
	c := config()
	disk := openDisk(t, c)
	members := founders(c)
	if err := identify(disk, c, members, storage.Identity{}); err != nil {
		t.Fatal(err)
	}
	if err := disk.Close(); err != nil {
		t.Fatal(err)
	}
	other := c
	other.AdvertisePeer = []url.URL{{Scheme: "http", Host: "b:1"}}
	other.Initial = map[string][]url.URL{"a": other.AdvertisePeer}
	if _, _, err := Found(other); !errors.Is(err, ErrConfig) {
		t.Errorf("with other peer URLs: %v", err)
	}
	if _, member, err := Found(c); err != nil || member != members[0].ID {
		t.Errorf("member %x, %v", member, err)
	}
}

// TestIDs checks that members with the same configuration derive the same IDs, and that another
// token gives different IDs.
func TestIDs(t *testing.T) {
	a := url.URL{Scheme: "http", Host: "a:1"}
	b := url.URL{Scheme: "http", Host: "b:1"}
	if memberID([]url.URL{a, b}, "t") != memberID([]url.URL{b, a}, "t") {
		t.Error("the order of URLs matters")
	}
	if memberID([]url.URL{a}, "t") == memberID([]url.URL{a}, "u") ||
		memberID([]url.URL{a}, "t") == memberID([]url.URL{b}, "t") {
		t.Error("ids do not differ")
	}
}
