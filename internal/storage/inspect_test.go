package storage

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"go.etcd.io/raft/v3/raftpb"
)

// full makes the data directory of a member, with records of all kinds.
func full(t *testing.T, cfg Config) {
	t.Helper()
	conf := raftpb.EnsureConfState(&raftpb.ConfState{
		Voters: []uint64{1}, VotersOutgoing: []uint64{2}, Learners: []uint64{3},
		LearnersNext: []uint64{4}, AutoLeave: new(true),
	})
	d := mustOpen(t, cfg)
	peers := Peers{Assembled: true, Incarnations: map[uint64]uint64{2: 5}}
	w := new(SnapshotWriter)
	for _, do := range []func() error{
		func() error { return d.Bootstrap(Identity{Cluster: 7, Member: 1, Name: "m1"}, conf) },
		func() error { return d.SavePeers(peers) },
		func() error { return d.Append(entries(1, 7, 2), hardState(3, 1, 4), true) },
		func() (err error) {
			w, err = d.NewSnapshot(SnapshotMeta{Index: 4, Term: 2, ConfState: conf})
			return err
		},
		func() error { return w.Write([]byte("one")) },
		func() error { return w.Write([]byte("two")) },
		func() error { return w.Commit() },
		func() error { return d.Compact(2) },
		d.Close,
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
}

// line tells of a record.
func line(r Record) string {
	switch v := r.Value.(type) {
	case LogEntry:
		return fmt.Sprintf("%s %d@%d %v %s", r.Kind, v.Index, v.Term, v.Type, v.Data)
	case Chunk:
		return fmt.Sprintf("%s %d %s", r.Kind, v.Number, v.Data)
	case nil:
		return fmt.Sprintf("%s: %v", r.Kind, r.Err)
	}
	return fmt.Sprintf("%s %+v", r.Kind, r.Value)
}

// inspected returns a line for each record of a directory.
func inspected(t *testing.T, cfg Config, want Wanted) (lines []string) {
	t.Helper()
	err := Inspect(cfg, want, func(r Record) error {
		lines = append(lines, line(r))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

// ledgerLineOf is what is told of a directory's ledger.
func ledgerLineOf(t *testing.T, fsys vfs.FS) string {
	t.Helper()
	l := &ledger{file: mustRead(t, fsys, "data/ledger")}
	if err := l.load(); err != nil || len(l.lines) == 0 {
		t.Fatalf("the ledger has %v: %v", l.lines, err)
	}
	mustClose(t, l.file)
	var files []string
	for _, x := range l.lines {
		files = append(files, fmt.Sprintf("{Name:%s Synced:%d}", x.name, x.end))
	}
	return fmt.Sprintf("ledger {Number:%d Files:[%s]}", l.seq, strings.Join(files, " "))
}

func mustRead(t *testing.T, fsys vfs.FS, name string) vfs.File {
	t.Helper()
	f, err := fsys.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// all returns what each file of a directory has.
func all(t *testing.T, fsys vfs.FS, dir string, into map[string]string) map[string]string {
	t.Helper()
	names, err := fsys.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		path := fsys.PathJoin(dir, n)
		if info, err := fsys.Stat(path); err == nil && info.IsDir() {
			all(t, fsys, path, into)
		} else {
			into[path] = readAll(t, fsys, path)
		}
	}
	return into
}

func readAll(t *testing.T, fsys vfs.FS, name string) string {
	t.Helper()
	f := mustRead(t, fsys, name)
	defer ignoreClose(f)
	b, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// singleLines are of the single records of full.
func singleLines() []string {
	const group = "{Voters:[1] Outgoing:[2] Learners:[3] LearnersNext:[4] AutoLeave:true}"
	return []string{
		"bootstrap " + group,
		"compaction mark {Index:2 Term:2}",
		"hard state {Term:3 Vote:1 Commit:4}",
		"identity {Cluster:7 Member:1 Incarnation:0 Name:m1 Generation:0 CreatedUnixMilli:0}",
		"peers {Assembled:true Claimed:false Incarnations:map[2:5]}",
		fmt.Sprintf("snapshot {Index:4 Term:2 Chunks:2 Bytes:6 Checksum:%d Members:%s}",
			crc32.Checksum([]byte("onetwo"), castagnoli), group),
	}
}

// Goal: each record is told of, once and in order, or those that are asked for, and nothing changes
// on disk; the directory is free afterwards, and nothing goes on. Method: a directory with a record
// of each kind, and a bubble, which does not end before its goroutines.
func TestInspect(t *testing.T) {
	mem := vfs.NewMem()
	full(t, testConfig(mem))
	counted := &countedFS{FS: mem}
	cfg := Config{Dir: "data", FS: counted}
	before := all(t, mem, "data", map[string]string{})
	entry := func(i int) string { return fmt.Sprintf("entry %d@2 EntryNormal %d@2", i, i) }
	for _, c := range []struct {
		want  Wanted
		lines []string
	}{
		{Wanted{}, []string{entry(3), entry(4), entry(5), entry(6)}},
		{Wanted{From: 4, To: 5}, []string{entry(4), entry(5)}},
		{
			Wanted{From: 6, To: math.MaxUint64, Chunks: true},
			[]string{"chunk 0 one", "chunk 1 two", entry(6)},
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			got := inspected(t, cfg, c.want)
			first := []string{ledgerLineOf(t, mem)}
			want := slices.Concat(first, singleLines(), c.lines)
			if !slices.Equal(got, want) {
				t.Errorf("%+v: it tells of\n%s\nnot of\n%s", c.want,
					strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
	if n := counted.open.Load(); n != 0 {
		t.Errorf("%d files are still open", n)
	}
	if !maps.Equal(before, all(t, mem, "data", map[string]string{})) {
		t.Error("the files have changed")
	}
	mustClose(t, mustOpen(t, testConfig(mem)))
}

// Goal: an error of visit's ends the inspection at once, and comes back. Method: at each record.
func TestInspectStopped(t *testing.T) {
	stop, want := errors.New("stop"), Wanted{Chunks: true}
	for _, damage := range []func(t *testing.T, mem *vfs.MemFS){
		damageTable, damageMarker, damageLog,
	} {
		mem := vfs.NewMem()
		full(t, testConfig(mem))
		damage(t, mem)
		cfg := Config{Dir: "data", FS: mem}
		for at := range len(inspected(t, cfg, want)) {
			calls := -1
			err := Inspect(cfg, want, func(Record) error {
				if calls++; calls == at {
					return stop
				}
				return nil
			})
			if !errors.Is(err, stop) || calls != at {
				t.Errorf("stopped at %d: %d calls, %v", at, calls, err)
			}
		}
	}
}

func damageLog(t *testing.T, mem *vfs.MemFS) {
	t.Helper()
	for path := range all(t, mem, "data/db", map[string]string{}) {
		if isLog(path) {
			flip(t, mem, path, 20)
		}
	}
}

func damageMarker(t *testing.T, mem *vfs.MemFS) {
	t.Helper()
	removeMarker(t, mem, "marker.manifest.")
}

// damageTable changes a chunk in the snapshot's table.
func damageTable(t *testing.T, mem *vfs.MemFS) {
	t.Helper()
	for path, text := range all(t, mem, "data/db", map[string]string{}) {
		if at := strings.Index(text, "one"); at >= 0 && strings.HasSuffix(path, ".sst") {
			flip(t, mem, path, int64(at))
			return
		}
	}
	t.Fatal("no table has the chunk")
}

// Goal: damage is told in its place, and what is sound after it is read all the same. Method: one
// damage after another, and what is told then between the first and the last record.
func TestInspectDamaged(t *testing.T) {
	const corrupt = ": storage: corrupt data: "
	for name, c := range map[string]struct {
		damage func(t *testing.T, mem *vfs.MemFS)
		want   []string // beginnings of lines, in order
		gone   string   // what is not told of
	}{
		"no ledger": {
			func(t *testing.T, mem *vfs.MemFS) { removeLedger(t, mem) },
			[]string{"ledger: open", "bootstrap {", "entry 6@2"},
			"database",
		},
		"ledger": {
			func(t *testing.T, mem *vfs.MemFS) {
				flip(t, mem, "data/ledger", 4)
				flip(t, mem, "data/ledger", ledgerSlot+4)
			},
			[]string{"ledger: ledger" + corrupt, "bootstrap {", "entry 6@2"},
			"ledger {",
		},
		"log": {
			damageLog,
			[]string{"ledger {", "database" + corrupt, "snapshot {"},
			"entry",
		},
		"marker": {
			damageMarker,
			[]string{"ledger {", "database" + corrupt, "database: "},
			"snapshot",
		},
		"table": {
			damageTable,
			[]string{"peers {", "database" + corrupt, "database" + corrupt, "entry 6@2"},
			"chunk",
		},
	} {
		t.Run(name, func(t *testing.T) {
			mem := vfs.NewMem()
			full(t, testConfig(mem))
			c.damage(t, mem)
			counted := &countedFS{FS: mem}
			lines := inspected(t, Config{Dir: "data", FS: counted}, Wanted{Chunks: true})
			text, rest := strings.Join(lines, "\n"), lines
			for _, w := range c.want {
				at := slices.IndexFunc(rest, func(l string) bool { return strings.HasPrefix(l, w) })
				if at < 0 {
					t.Fatalf("%q is missing in\n%s", w, text)
				}
				rest = rest[at+1:]
			}
			if strings.Contains(text, "\n"+c.gone) {
				t.Errorf("%s is told of in\n%s", c.gone, text)
			}
			if n := counted.open.Load(); n != 0 {
				t.Errorf("%d files are still open", n)
			}
		})
	}
}

// Goal: a record that cannot be read is told of by its name, with the reason and without a value,
// and one that this release does not know as that. Method: records that are not sealed under every
// key, and sealed ones under strange keys.
func TestInspectBadRecords(t *testing.T) {
	mem := vfs.NewMem()
	full(t, testConfig(mem))
	bad := map[string][]byte{
		"bootstrap": keyConf, "compaction mark": keyMark, "hard state": keyHard,
		"identity": keyIdentity, "peers": keyPeers, "snapshot": keyManifest,
		"chunk": chunkKey(4, 1), "entry": entryKey(5),
	}
	short, strange := chunkKey(4, 2)[:chunkKeyLen-1], []byte("z123456789012")
	tamper(t, testConfig(mem), func(b *pebble.Batch) {
		for _, key := range bad {
			_ = b.Set(key, []byte("123456789"), nil)
		}
		_ = b.Set(short, record(chunkVersion, short, nil), nil)
		_ = b.Set(strange, record(1, strange, nil), nil)
	})
	told := make(map[string][]error)
	err := Inspect(Config{Dir: "data", FS: mem}, Wanted{Chunks: true}, func(r Record) error {
		if r.Err == nil {
			return nil
		}
		if r.Value != nil {
			t.Errorf("%s has the value %v, and %v", r.Kind, r.Value, r.Err)
		}
		told[r.Kind] = append(told[r.Kind], r.Err)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for kind := range bad {
		if errs := told[kind]; len(errs) != 1 || !errors.Is(errs[0], ErrCorrupt) {
			t.Errorf("%s: %v", kind, errs)
		}
	}
	errs := told["record"]
	if len(errs) != 2 || !errors.Is(errs[0], ErrVersion) || !errors.Is(errs[1], ErrVersion) {
		t.Errorf("of strange records is told: %v", errs)
	}
}

// Goal: what is no data directory is told from one that cannot be read, and from one in use.
func TestInspectRefused(t *testing.T) {
	never := func(Record) error {
		t.Error("a record is told of")
		return nil
	}
	mem := vfs.NewMem()
	if err := mem.MkdirAll("data", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Inspect(Config{Dir: "data", FS: mem}, Wanted{}, never); !errors.Is(err, ErrForeign) {
		t.Errorf("without a database: %v", err)
	}
	mustClose(t, mustCreate(t, mem, "data/db"))
	if err := Inspect(Config{Dir: "data", FS: mem}, Wanted{}, never); !errors.Is(err, ErrForeign) {
		t.Errorf("with a file for a database: %v", err)
	}
	broken := errors.New("broken")
	failing := errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpStat {
			return broken
		}
		return nil
	}))
	if err := Inspect(Config{Dir: "data", FS: failing}, Wanted{}, never); !errors.Is(err, broken) {
		t.Errorf("on a broken disk: %v", err)
	}
	d := mustOpen(t, testConfig(vfs.NewMem()))
	defer ignoreClose(d)
	err := Inspect(Config{Dir: "data", FS: d.fs}, Wanted{}, never)
	if err == nil || !strings.HasPrefix(err.Error(), "data: ") {
		t.Errorf("while a member runs on it: %v", err)
	}
}

// Goal: nothing can be changed through a file system that is for reading. Method: all that changes
// something.
func TestReadOnly(t *testing.T) {
	mem := vfs.NewMem()
	mustClose(t, mustCreate(t, mem, "a"))
	r := readOnly{mem}
	for name, change := range map[string]func() error{
		"create":    func() error { _, err := r.Create("b", ""); return err },
		"write":     func() error { _, err := r.OpenReadWrite("a", ""); return err },
		"reuse":     func() error { _, err := r.ReuseForWrite("a", "b", ""); return err },
		"link":      func() error { return r.Link("a", "b") },
		"remove":    func() error { return r.Remove("a") },
		"removeall": func() error { return r.RemoveAll("a") },
		"rename":    func() error { return r.Rename("a", "b") },
		"mkdir":     func() error { return r.MkdirAll("b", fs.ModePerm) },
	} {
		if err := change(); !errors.Is(err, errReadOnly) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got, err := mem.List(""); err != nil || !slices.Equal(got, []string{"a"}) {
		t.Errorf("there is %v: %v", got, err)
	}
}
