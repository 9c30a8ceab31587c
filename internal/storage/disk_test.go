package storage

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// testConfig is small: hundreds of Disks are opened, and those that fail leak.
func testConfig(fs vfs.FS) Config {
	return Config{
		Dir: "data", FS: fs, MemTableBytes: 256 << 10, CacheBytes: 1 << 16,
		ReserveBytes: -1, BallastBytes: 64 << 10, TailBytes: 4 << 10,
	}
}

func mustOpen(t testing.TB, cfg Config) *Disk {
	t.Helper()
	d, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func mustBootstrap(t testing.TB, cfg Config) *Disk {
	t.Helper()
	d := mustOpen(t, cfg)
	if err := d.Bootstrap(Identity{Cluster: 7, Member: 1, Name: "m1"}, voters(1)); err != nil {
		t.Fatal(err)
	}
	return d
}

func voters(ids ...uint64) *raftpb.ConfState {
	return raftpb.EnsureConfState(&raftpb.ConfState{Voters: ids})
}

func entry(index, term uint64, data string) *raftpb.Entry {
	return &raftpb.Entry{
		Index: new(index), Term: new(term), Type: raftpb.EntryNormal.Enum(), Data: []byte(data),
	}
}

func entries(lo, hi, term uint64) []*raftpb.Entry {
	var es []*raftpb.Entry
	for i := lo; i < hi; i++ {
		es = append(es, entry(i, term, fmt.Sprintf("%d@%d", i, term)))
	}
	return es
}

func hardState(term, vote, commit uint64) *raftpb.HardState {
	return &raftpb.HardState{Term: &term, Vote: &vote, Commit: &commit}
}

func writeSnapshot(d *Disk, index, term uint64, chunks ...string) error {
	w, err := d.NewSnapshot(SnapshotMeta{Index: index, Term: term, ConfState: voters(1, index)})
	if err != nil {
		return err
	}
	defer w.Abort()
	for _, c := range chunks {
		if err := w.Write([]byte(c)); err != nil {
			return err
		}
	}
	return w.Commit()
}

func readSnapshot(d *Disk) (SnapshotInfo, []string, error) {
	r, err := d.OpenSnapshot()
	if err != nil {
		return SnapshotInfo{}, nil, err
	}
	defer ignoreClose(r)
	var chunks []string
	for {
		c, err := r.Next()
		if errors.Is(err, io.EOF) {
			return r.Meta(), chunks, nil
		}
		if err != nil {
			return r.Meta(), chunks, err
		}
		chunks = append(chunks, string(c))
	}
}

func TestSmoke(t *testing.T) {
	cfg := testConfig(vfs.NewCrashableMem())
	d := mustBootstrap(t, cfg)
	if err := d.Append(entries(1, 100, 1), hardState(1, 1, 50), true); err != nil {
		t.Fatal(err)
	}
	if err := writeSnapshot(d, 50, 1, "a", "b", "c"); err != nil {
		t.Fatal(err)
	}
	if err := d.Compact(40); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = mustOpen(t, cfg)
	info, chunks, err := readSnapshot(d)
	t.Log(info, chunks, err)
	es, err := d.Entries(41, 100, 1<<30)
	t.Log(len(es), err)
	t.Logf("%+v", d.Usage())
	if _, err := d.Entries(40, 50, 1); !errors.Is(err, raft.ErrCompacted) {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
}
