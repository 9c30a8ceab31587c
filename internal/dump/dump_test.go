package dump

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"flag"
	"io/fs"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"leasehold.dev/internal/backup"
	"leasehold.dev/internal/encoding"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/storage"
	"leasehold.dev/lease"
	"leasehold.dev/test/corpus"
	"leasehold.dev/test/tier"
)

var rewrite = flag.Bool("rewrite", false, "write the output to testdata")

// fsmCorpus is the directory with every type of record in a state and a log.
const fsmCorpus = "../fsm/testdata/v1/"

// backupOf returns a backup file of a state that consists of the given chunks.
func backupOf(t testing.TB, chunks ...[]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	err := backup.Write(t.Context(), &b, 0xc105, func(write func([]byte) error) error {
		for _, chunk := range chunks {
			if err := write(chunk); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(b.Bytes())
	return append(b.Bytes(), sum[:]...)
}

// corpusBackup returns a backup with a record of each type.
func corpusBackup(t testing.TB) []byte {
	t.Helper()
	return backupOf(t, corpus.Read(t, fsmCorpus+"snapshot.txt")[0].Bytes)
}

func dumpOf(t testing.TB, file []byte) string {
	t.Helper()
	var b bytes.Buffer
	if err := Backup(&b, bytes.NewReader(file)); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// golden compares got with a golden file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	name = filepath.Join("testdata", name)
	if *rewrite {
		if err := os.WriteFile(name, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil || string(want) != got {
		t.Errorf("%s: %v: got\n%s", name, err, got)
	}
}

// TestGoldenBackup checks that a dump shows each field of each record. It compares dumps of a
// backup with golden files; the backup has a record of each type.
func TestGoldenBackup(t *testing.T) {
	golden(t, "backup.json", dumpOf(t, corpusBackup(t)))
}

// TestGoldenDirectory is TestGoldenBackup for a data directory.
func TestGoldenDirectory(t *testing.T) {
	dir := corpusDirectory(t)
	for name, o := range map[string]Options{
		"directory.json": {Snapshot: true}, "part.json": {From: 4, To: 5},
	} {
		var b bytes.Buffer
		if err := Directory(&b, dir, o); err != nil {
			t.Fatal(err)
		}
		golden(t, name, b.String())
	}
}

// corpusDirectory creates a data directory with entries of all types.
func corpusDirectory(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	d, err := storage.Open(storage.Config{Dir: dir, SegmentBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	members := raftpb.EnsureConfState(&raftpb.ConfState{Voters: []uint64{1}})
	fatal(t, d.Bootstrap(storage.Identity{
		Cluster: 0xc105, Member: 1, Incarnation: math.MaxUint64, Name: "m\x1b1", Generation: 2,
		CreatedUnixMilli: 1_700_000_000_000,
	}, members))
	fatal(t, d.SavePeers(storage.Peers{Claimed: true, Incarnations: map[uint64]uint64{2: 5}}))
	w, err := d.NewSnapshot(storage.SnapshotMeta{Index: 1, Term: 1, ConfState: members})
	fatal(t, err)
	fatal(t, w.Write(corpus.Read(t, fsmCorpus+"snapshot.txt")[0].Bytes))
	fatal(t, w.Commit(0))
	entries := entriesOf(t)
	state := &raftpb.HardState{Term: new(uint64(3)), Vote: new(uint64(1)), Commit: new(uint64(4))}
	fatal(t, d.Append(entries, state))
	fatal(t, d.Close())
	return dir
}

func fatal(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// entriesOf returns an empty entry, a membership change, and the entries and commands of the
// corpus.
func entriesOf(t testing.TB) (out []*raftpb.Entry) {
	t.Helper()
	add := func(typ raftpb.EntryType, data []byte) {
		out = append(out, &raftpb.Entry{
			Index: new(uint64(len(out) + 2)), Term: new(uint64(2)), Type: typ.Enum(), Data: data,
		})
	}
	add(raftpb.EntryNormal, nil)
	change, err := proto.Marshal(&raftpb.ConfChangeV2{
		Changes: []*raftpb.ConfChangeSingle{{
			Type: raftpb.ConfChangeAddLearnerNode.Enum(), NodeId: new(uint64(9)),
		}},
		Context: entryOf(
			&fsm.AddMember{Member: fsm.Member{ID: 9, Learner: true, PeerURLs: []string{"http://h:1"}}},
		),
	})
	fatal(t, err)
	add(raftpb.EntryConfChangeV2, change)
	add(raftpb.EntryNormal, entryOf(
		&fsm.Put{Key: "a\x1b[31m", Value: []byte{0xff, 0}, Lease: 0xabc},
		&fsm.HandOver{ID: 5, Owner: "b", Secret: lease.Secret{1}},
	))
	for _, r := range corpus.Read(t, fsmCorpus+"entries.txt") {
		add(raftpb.EntryNormal, r.Bytes)
	}
	for _, r := range corpus.Read(t, fsmCorpus+"commands.txt") {
		add(raftpb.EntryNormal, append(fsm.AppendEntry(nil, 1), r.Bytes...))
	}
	return out
}

// sound returns the lines of a dump that are not errors.
func sound(out string) (lines []string) {
	for line := range strings.Lines(out) {
		if !strings.HasPrefix(line, `{"record":"error"`) {
			lines = append(lines, line)
		}
	}
	return lines
}

// TestDamagedBackup checks that a dump prints everything before the damage in a backup, and reports
// the damage. It truncates a backup of two chunks after each byte, and changes each byte.
func TestDamagedBackup(t *testing.T) {
	whole := corpus.Read(t, fsmCorpus+"snapshot.txt")[0].Bytes
	half := bytes.LastIndex(whole, []byte{9, 14}) // the answer to a session's request
	file := backupOf(t, whole[:half], whole[half:])
	all := sound(dumpOf(t, file))
	check := func(what string, at int, bad []byte) {
		var b bytes.Buffer
		err := Backup(&b, bytes.NewReader(bad))
		if err == nil {
			t.Errorf("byte %d %s: no error", at, what)
		}
		lines := sound(b.String())
		if n := len(lines); at > len(file)-sha256.Size && n != len(all) ||
			what == "is the end" && !slices.Equal(lines, all[:n]) {
			t.Errorf("byte %d %s: printed\n%s", at, what, b.String())
		}
	}
	for at := range file {
		check("is the end", at, file[:at])
		bad := bytes.Clone(file)
		bad[at] ^= 1 << (at % 8)
		check("is changed", at, bad)
	}
	bad := bytes.Clone(file)
	bad[100] ^= 1 // in the first chunk; the second then lacks a header, which is a separate error
	var b bytes.Buffer
	err := Backup(&b, bytes.NewReader(bad))
	if !errors.Is(err, backup.ErrChunk) || strings.Count(b.String(), `"record":"error"`) < 2 {
		t.Errorf("%v\n%s", err, b.String())
	}
	bad = bytes.Clone(file)
	at := bytes.Index(file, whole[half:])
	bad[at+20] ^= 1 // in the second chunk; the first is printed
	b.Reset()
	if err := Backup(&b, bytes.NewReader(bad)); err == nil || len(sound(b.String())) < 10 {
		t.Errorf("%v\n%s", err, b.String())
	}
}

// TestWritersAfterLostChunk checks that a dump of a damaged backup never attributes anything to the
// wrong principal. Records refer to most writers by number, in the order in which the state first
// mentions them, so the numbers that follow an unreadable chunk are unknown. The third of four
// chunks either has a changed byte, so that its checksum is wrong, or contains a record that cannot
// be decoded.
func TestWritersAfterLostChunk(t *testing.T) {
	whole := corpus.Read(t, fsmCorpus+"snapshot.txt")[0].Bytes
	deleted := func(key byte, writer ...byte) []byte {
		return append([]byte{5, 1 | 4, 2, 0, 1, key}, writer...)
	}
	named := func(name string) []byte { return append([]byte{0, byte(len(name))}, name...) }
	chunks := [][]byte{
		whole[:bytes.Index(whole, []byte{9, 14})],
		deleted('a', named("alice")...),
		deleted('b', named("bob")...),
		slices.Concat(deleted('c', named("carol")...), deleted('d', 1), deleted('e', 2), deleted('f', 3)),
	}
	changed := backupOf(t, chunks...)
	changed[bytes.Index(changed, chunks[2])] ^= 1
	chunks[2] = deleted('b', 99)
	for name, file := range map[string][]byte{"changed": changed, "not decoded": backupOf(t, chunks...)} {
		var b bytes.Buffer
		if err := Backup(&b, bytes.NewReader(file)); err == nil {
			t.Errorf("%s: no error", name)
		}
		var got []string
		for _, m := range regexp.MustCompile(`"writtenFor":"([^"]*)"`).FindAllStringSubmatch(
			strings.Join(sound(b.String()), ""), -1) {
			got = append(got, m[1])
		}
		if want := []string{"alice", "carol", "alice", "?2", "?3"}; !slices.Equal(got, want) {
			t.Errorf("%s: the dump names %q, want %q", name, got, want)
		}
	}
}

// TestChangedRecords checks that every bit of a record except secrets is shown, that data written
// by a newer release is reported as such, and that no input makes a dump panic.
func TestChangedRecords(t *testing.T) {
	whole := corpus.Read(t, fsmCorpus+"snapshot.txt")[0].Bytes
	good := dumpOf(t, backupOf(t, whole))
	newer, hidden := 0, 0
	for bad := range corpus.Flipped(whole) {
		var b bytes.Buffer
		err := Backup(&b, bytes.NewReader(backupOf(t, bad)))
		switch {
		case errors.Is(err, encoding.ErrNewer):
			newer++
		case err == nil && b.String() == good:
			hidden++
		}
	}
	if newer == 0 {
		t.Error("no flipped bit looks like a newer release")
	}
	secret := strings.Count(good, "secret of 32 bytes") * 8 * 32
	secret += strings.Count(good, "hash of 4 bytes") * 8 * 4
	if hidden != secret {
		t.Errorf("%d bits are not shown, want %d, those of secrets", hidden, secret)
	}
}

// TestChangedEntries checks that an entry that cannot be read completely is printed up to the
// error, and that the entries after it are printed as well.
func TestChangedEntries(t *testing.T) {
	newer := 0
	for _, e := range entriesOf(t) {
		for bad := range corpus.Flipped(e.GetData()) {
			p := newPrinter(&bytes.Buffer{})
			p.entry(storage.LogEntry{Index: e.GetIndex(), Type: e.GetType(), Data: bad})
			if errors.Is(p.end(), encoding.ErrNewer) {
				newer++
			}
		}
	}
	if newer == 0 {
		t.Error("no flipped bit looks like a newer release")
	}
	var b bytes.Buffer
	p := newPrinter(&b)
	data := append(fsm.AppendEntry(nil, 1), 14, 4, 127, 14, 4)
	p.entry(storage.LogEntry{Index: 5, Data: data})
	p.entry(storage.LogEntry{Index: 6})
	err := p.end()
	if !errors.Is(err, encoding.ErrNewer) || !strings.Contains(err.Error(), "entry 5") {
		t.Errorf("error: %v", err)
	}
	golden(t, "newer.json", b.String())
}

// files returns the contents, modes and modification times of all files in a directory.
func files(t testing.TB, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	fatal(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil || e.IsDir() {
			out[path] = ""
			return err
		}
		b, err := os.ReadFile(path)
		out[path] = info.Mode().String() + info.ModTime().String() + string(b)
		return err
	}))
	return out
}

// TestDamagedDirectory checks that a dump never panics and never changes a data directory, damaged
// or not. It truncates each file, changes it in several places, and removes it, and compares the
// directory before and after the dump.
func TestDamagedDirectory(t *testing.T) {
	tier.Campaign(t)
	dir := corpusDirectory(t)
	check := func(what string) (string, error) {
		t.Helper()
		before := files(t, dir)
		var b bytes.Buffer
		err := Directory(&b, dir, Options{Snapshot: true})
		if after := files(t, dir); !maps.Equal(before, after) {
			t.Errorf("%s: the dump changed the directory", what)
		}
		return b.String(), err
	}
	good, err := check("whole")
	fatal(t, err)
	for path, b := range contents(t, dir) {
		for n := range 2 {
			at := len(b) * (2*n + 1) / 4
			fatal(t, os.WriteFile(path, b[:at], 0o600))
			_, _ = check(path + " is truncated")
			bad := bytes.Clone(b)
			bad[at] ^= 1 << (n % 8)
			fatal(t, os.WriteFile(path, bad, 0o600))
			_, _ = check(path + " is changed")
		}
		fatal(t, os.Remove(path))
		_, err := check(path + " is missing")
		if spare := len(bytes.Trim(b, "\x00")) == 0; err == nil && !spare {
			t.Errorf("%s is missing: no error", path)
		}
		fatal(t, os.WriteFile(path, b, 0o600))
	}
	if again, err := check("restored"); err != nil || again != good {
		t.Errorf("restored: %v\n%s", err, again)
	}
}

// contents returns the contents of all nonempty files.
func contents(t testing.TB, dir string) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for path := range files(t, dir) {
		if b, err := os.ReadFile(path); err == nil && len(b) > 0 {
			out[path] = b
		}
	}
	return out
}

// TestNotADirectory checks that a directory that does not belong to a member is rejected, and that
// nothing is created in it.
func TestNotADirectory(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Join(dir, "none")} {
		err := Directory(&bytes.Buffer{}, d, Options{})
		if !errors.Is(err, storage.ErrForeign) {
			t.Errorf("%s: %v", d, err)
		}
	}
	if names := files(t, dir); len(names) != 1 {
		t.Errorf("the dump created %v", names)
	}
}

// TestWriteFails checks that a dump returns the writer's error.
func TestWriteFails(t *testing.T) {
	closed, file := errors.New("closed"), corpusBackup(t)
	err := Backup(failing{closed}, bytes.NewReader(file))
	if !errors.Is(err, closed) {
		t.Errorf("error: %v", err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// entryOf returns an entry with the given commands.
func entryOf(commands ...fsm.Command) []byte {
	b := fsm.AppendGroup(fsm.AppendEntry(nil, 1), fsm.Origin{}, len(commands))
	for _, c := range commands {
		b = fsm.AppendCommand(b, c)
	}
	return b
}
