package rewind

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/storage"
)

// dataDir creates the data directory of one of three members. Its snapshot ends at revision 5 and
// its log at revision 11. Revision 7 is known to be committed.
func dataDir(t *testing.T) string {
	t.Helper()
	a := newArchive(t)
	for i, name := range []string{"a", "b", "c"} {
		a.machine.AddMember(fsm.Member{
			ID: uint64(i + 1), Name: name, PeerURLs: []string{"http://" + name + ":2380"},
			ClientURLs: []string{"http://" + name + ":2379"},
		})
	}
	a.machine.AddMember(fsm.Member{ID: 9, Name: "old"})
	if r := a.machine.Apply(&fsm.RemoveMember{ID: 9}); r.Err != nil {
		t.Fatal(r.Err)
	}
	a.write(3)
	dir := filepath.Join(t.TempDir(), "data")
	disk, err := storage.Open(storage.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	conf := &raftpb.ConfState{Voters: []uint64{1, 2, 3}}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(disk.Bootstrap(storage.Identity{
		Cluster: testCluster, Member: 1, Incarnation: 7, Name: "a",
	}, conf))
	entry := func(i uint64) *raftpb.Entry {
		term := uint64(1)
		return &raftpb.Entry{Index: &i, Term: &term, Data: a.entries[i-2].Data}
	}
	w, err := disk.NewSnapshot(storage.SnapshotMeta{Index: 3, Term: 1, ConfState: conf})
	check(err)
	check(a.machine.Image().Encode(w.Write))
	check(w.Finish())
	check(w.Commit(0))
	a.write(6)
	hard := &raftpb.HardState{Term: new(uint64(1)), Vote: new(uint64(2)), Commit: new(uint64(4))}
	check(disk.Append([]*raftpb.Entry{entry(4), entry(5), entry(6)}, hard))
	check(disk.Close())
	return dir
}

// files returns the contents of all files below a directory, keyed by name.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		out[name] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func examine(t *testing.T, dir string) *Directory {
	t.Helper()
	d, err := Examine(dir)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestExamine checks that Examine determines the condition of a data directory without changing it.
func TestExamine(t *testing.T) {
	t.Parallel()
	write := func(name string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			t.Helper()
			path := filepath.Join(dir, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	empty := func(t *testing.T, dir string) {
		t.Helper()
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	for name, x := range map[string]struct {
		change func(*testing.T, string)
		want   Condition
		why    string
	}{
		"sound":          {func(*testing.T, string) {}, Sound, ""},
		"missing":        {empty, Empty, ""},
		"half restored":  {write(storage.Restoring), HalfRestored, "interrupted"},
		"rolled back":    {write(storage.RolledBack), RolledBack, "older state"},
		"with evidence":  {write("damaged-12.backup"), Damaged, "damaged-12.backup"},
		"without a log":  {removeLogs, Damaged, "log"},
		"a changed byte": {changeByte, Damaged, ""},
		"without a directory for the log": {func(t *testing.T, dir string) {
			t.Helper()
			empty(t, filepath.Join(dir, "log"))
		}, Damaged, "log: no such file"},
		"etcd's": {func(t *testing.T, dir string) {
			t.Helper()
			empty(t, dir)
			write("member/wal/0.wal")(t, dir)
		}, Foreign, "etcd"},
		"beside other files": {func(t *testing.T, dir string) {
			t.Helper()
			empty(t, dir)
			write("fixtures/client/cert.pem")(t, dir)
		}, Empty, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := dataDir(t)
			x.change(t, dir)
			var before map[string]string
			if name != "missing" {
				before = files(t, dir)
			}
			d := examine(t, dir)
			if d.Condition != x.want || (d.Why == nil) != (x.want == Empty || x.want == Sound) ||
				d.Why != nil && !strings.Contains(d.Why.Error(), x.why) {
				t.Errorf("condition %d, %v; want %d, %s", d.Condition, d.Why, x.want, x.why)
			}
			if name == "missing" {
				return
			}
			after := files(t, dir)
			for f, text := range before {
				if after[f] != text {
					t.Errorf("%s has changed", f)
				}
			}
			if len(after) != len(before) {
				t.Errorf("%d files after Examine, %d before", len(after), len(before))
			}
		})
	}
}

// TestExamineShortLog checks that a log ending before the known commit index is reported as
// damaged.
func TestExamineShortLog(t *testing.T) {
	t.Parallel()
	d := examine(t, dataDir(t))
	d.commit = d.Index + 1
	if d.classify(nil); d.Condition != Damaged || !strings.Contains(d.Why.Error(), "the log ends at 6") {
		t.Errorf("condition %d, %v; want Damaged", d.Condition, d.Why)
	}
}

func removeLogs(t *testing.T, dir string) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(dir, "log", "*.segment"))
	if err != nil || len(logs) == 0 {
		t.Fatalf("%q, %v", logs, err)
	}
	for _, name := range logs {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
}

// changeByte changes a byte of an entry.
func changeByte(t *testing.T, dir string) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(dir, "log", "*.segment"))
	if err != nil {
		t.Fatal(err)
	}
	changed := false
	for _, name := range logs {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if i := bytes.Index(b, []byte("5+")); i >= 0 {
			b[i] ^= 1
			changed = true
		}
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if !changed {
		t.Fatal("no log contains the entry")
	}
}

// TestForceNewCluster checks that a survivor reports everything in its log, committed or not, and
// becomes the only member of its cluster with all of it. The old directory is kept.
func TestForceNewCluster(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 { // repairs run as root, but members do not
		if err := os.Chown(dir, 4321, 1234); err != nil {
			t.Fatal(err)
		}
	}
	owner := func(name string) any {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		return ownerOf(info)
	}
	ownerBefore := owner(dir)
	before := files(t, dir)
	d := examine(t, link)
	names := func(d *Directory) (out []string) {
		for _, m := range d.Members {
			out = append(out, m.Name)
		}
		return out
	}
	if d.Revision != 11 || d.Index != 6 || d.Term != 1 || d.Member != 1 || d.Name != "a" ||
		d.Cluster != testCluster || !slices.Equal(names(d), []string{"a", "b", "c"}) ||
		d.Members[2].PeerURLs[0] != "http://c:2380" || d.Members[2].ClientURLs[0] != "http://c:2379" {
		t.Errorf("Examine: %+v", d)
	}
	kept, err := d.ForceNewCluster(time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	if want := d.Path + ".before-recovery-20260131T120000Z"; kept != want {
		t.Errorf("kept as %s, want %s", kept, want)
	}
	for _, name := range []string{"", "identity", "log", "log/lock"} {
		if now := owner(filepath.Join(dir, name)); now != ownerBefore {
			t.Errorf("%q belongs to %v, want %v", name, now, ownerBefore)
		}
	}
	after := files(t, kept)
	if len(after) != len(before) || after["identity"] != before["identity"] {
		t.Errorf("%d of %d files were kept", len(after), len(before))
	}
	created := examine(t, link)
	if created.Condition != Sound || created.Member != 1 || created.Cluster != testCluster ||
		created.Revision < 1_000_000_000 || !slices.Equal(names(created), []string{"a"}) {
		t.Errorf("new directory: %+v", created)
	}
	v := created.machine.View()
	if kv := v.KV.Get("k"); kv == nil || string(kv.Value) != "6+" {
		t.Errorf("key k: %+v", kv)
	}
	if !slices.Equal(v.Removed, []uint64{2, 3, 9}) || v.Members[0].PeerURLs[0] != "http://a:2380" {
		t.Errorf("removed %v, members %+v", v.Removed, v.Members)
	}
	disk, err := storage.Open(storage.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer disk.Close()
	if id, _ := disk.Identity(); id.Incarnation == 7 {
		t.Error("the new directory has the old incarnation")
	}
}

// TestForceNewClusterRefusals checks that ForceNewCluster requires an intact directory, and leaves
// it in place if it fails.
func TestForceNewClusterRefusals(t *testing.T) {
	t.Parallel()
	dir := dataDir(t)
	d := examine(t, dir)
	d.Members[0].PeerURLs = []string{"nonsense"}
	if _, err := d.ForceNewCluster(time.Now()); err == nil || examine(t, dir).Condition != Sound {
		t.Errorf("without a good peer URL: %v", err)
	}
	d = examine(t, dir)
	d.Member = 9
	_, err := d.ForceNewCluster(time.Now())
	if err == nil || !strings.Contains(err.Error(), "removed") {
		t.Errorf("a member missing from its state: %v", err)
	}
	now := time.Now()
	if err := os.Mkdir(dir+now.UTC().Format(".before-recovery-20060102T150405Z"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := examine(t, dir).ForceNewCluster(now); err == nil ||
		!strings.Contains(err.Error(), "already") {
		t.Errorf("with a directory kept before: %v", err)
	}
	if examine(t, dir).Condition != Sound {
		t.Error("the directory is gone")
	}
	changeByte(t, dir)
	if _, err := examine(t, dir).ForceNewCluster(time.Now()); err == nil ||
		!strings.Contains(err.Error(), "not usable") {
		t.Errorf("damaged: %v", err)
	}
}
