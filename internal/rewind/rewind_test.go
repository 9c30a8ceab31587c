package rewind

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"leasehold.dev/internal/backup"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/storage"
	"leasehold.dev/server"
)

const testCluster = 0xc1

var testHistory = backup.History{Cluster: testCluster}

// archive is a directory with backups of a known state. Entry i of the log, from 2 on, is committed
// at i seconds and creates revisions 2i-2 and 2i-1. It sets "k" to i, and then to i followed by
// "+".
type archive struct {
	t       *testing.T
	dir     string
	machine *fsm.Machine
	entries []backup.Entry // starting at entry 2
	history backup.History
}

var start = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

func newArchive(t *testing.T) *archive {
	t.Helper()
	a := &archive{t: t, dir: t.TempDir(), machine: fsm.New(machineConfig()), history: testHistory}
	a.machine.Begin(1, 1)
	for _, dir := range []string{"full", "log"} {
		if err := os.Mkdir(filepath.Join(a.dir, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	a.save(backup.ManifestName, backup.Manifest(a.history))
	return a
}

func (a *archive) save(name string, b []byte) {
	a.t.Helper()
	if err := os.WriteFile(filepath.Join(a.dir, name), b, 0o600); err != nil {
		a.t.Fatal(err)
	}
}

// write appends entries up to the given index.
func (a *archive) write(last uint64) {
	for i := a.machine.Index() + 1; i <= last; i++ {
		data := fsm.AppendEntry(nil, a.machine.Version().Number)
		data = fsm.AppendGroup(data, fsm.Origin{}, 2)
		a.machine.Begin(i, 1)
		for _, value := range []string{fmt.Sprint(i), fmt.Sprint(i, "+")} {
			c := &fsm.Put{Key: "k", Value: []byte(value)}
			data = fsm.AppendCommand(data, c)
			if r := a.machine.Apply(c); r.Err != nil {
				a.t.Fatal(r.Err)
			}
		}
		a.entries = append(a.entries, backup.Entry{Term: 1, Data: data})
	}
}

// full makes a full backup and returns its name.
func (a *archive) full() string {
	a.t.Helper()
	var b bytes.Buffer
	err := backup.Write(a.t.Context(), &b, testCluster, a.machine.Image().Encode)
	if err != nil {
		a.t.Fatal(err)
	}
	sum := sha256.Sum256(b.Bytes())
	i := a.machine.Index()
	name := backup.FullName(backup.Place{Index: i, Term: 1}, a.machine.View().KV.Revision(),
		start.Add(time.Duration(i)*time.Second))
	a.save(name, append(b.Bytes(), sum[:]...))
	return name
}

// piece copies entries and returns the name of the piece.
func (a *archive) piece(first, last uint64) string {
	a.t.Helper()
	p := backup.Piece{
		History: a.history, Previous: backup.Place{Index: first - 1, Term: 1},
		Entries: a.entries[first-2 : last-1],
	}
	when := func(i uint64) time.Time { return start.Add(time.Duration(i) * time.Second) }
	for i := first; i <= last; i++ {
		p.Marks = append(p.Marks, backup.Mark{Index: i, Milli: when(i).UnixMilli()})
	}
	name := backup.PieceName(backup.PieceInfo{
		First: first, Before: 1, Last: p.Last(), Revision: int64(2*last - 1), Time: when(last),
		Member: 1,
	})
	a.save(name, p.Encode())
	return name
}

// damage changes a byte in the middle of an object.
func (a *archive) damage(name string) {
	a.t.Helper()
	path := filepath.Join(a.dir, name)
	b, err := os.ReadFile(path)
	if err != nil {
		a.t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	a.save(name, b)
}

func (a *archive) remove(name string) {
	a.t.Helper()
	if err := os.Remove(filepath.Join(a.dir, name)); err != nil {
		a.t.Fatal(err)
	}
}

// restore restores the state at a moment and returns the value of "k".
func (a *archive) restore(to Moment) (value string, r Restored, warnings string, err error) {
	a.t.Helper()
	c := server.DefaultConfig()
	c.DataDir = filepath.Join(a.t.TempDir(), "data")
	b, err := Open(a.dir, "")
	if err != nil {
		a.t.Fatal(err)
	}
	r, err = b.Restore(a.t.Context(), to, c, server.RestoreOptions{KeepRevision: true},
		func(line string) { warnings += line + "\n" })
	if err != nil {
		if _, exists := os.Stat(c.DataDir); exists == nil {
			a.t.Error("a directory was left behind")
		}
		return "", r, warnings, err
	}
	m := a.open(c.DataDir)
	kv := m.View().KV.Get("k")
	if kv == nil || m.View().KV.Revision() != r.Revision || kv.ModRevision != r.Revision {
		a.t.Errorf("key k is %+v at revision %d, but Restore returned %+v", kv, m.View().KV.Revision(), r)
	}
	return string(kv.Value), r, warnings, nil
}

// open returns the state found in a data directory.
func (a *archive) open(dir string) *fsm.Machine {
	a.t.Helper()
	disk, err := storage.Open(storage.Config{Dir: dir})
	if err != nil {
		a.t.Fatal(err)
	}
	defer disk.Close()
	s, err := disk.OpenSnapshot()
	if err != nil {
		a.t.Fatal(err)
	}
	defer s.Close()
	m, err := fsm.Restore(machineConfig(), func() ([]byte, bool, error) {
		chunk, err := s.Next()
		if errors.Is(err, io.EOF) {
			return nil, false, nil
		}
		return chunk, err == nil, err
	})
	if err != nil {
		a.t.Fatal(err)
	}
	return m
}

// TestMoments restores every revision and every second since the oldest full backup.
func TestMoments(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.write(3)
	first := a.full()
	a.write(6)
	second := a.full()
	a.write(9)
	a.piece(2, 5)
	a.piece(4, 7)
	a.piece(8, 9)
	second5 := start.Add(5*time.Second + 999*time.Millisecond)
	for _, x := range []struct {
		to    Moment
		value string
		from  string
	}{
		{Moment{}, "9+", second},
		{Moment{Revision: 5}, "3+", first},
		{Moment{Revision: 6}, "4", first},
		{Moment{Revision: 9}, "5+", first},
		{Moment{Revision: 11}, "6+", second},
		{Moment{Revision: 16}, "9", second},
		{Moment{Revision: 17}, "9+", second},
		{Moment{Time: start.Add(3 * time.Second)}, "3+", first},
		{Moment{Time: second5}, "5+", first},
		{Moment{Time: start.Add(6 * time.Second)}, "6+", second},
		{Moment{Time: start.Add(time.Hour)}, "9+", second},
	} {
		value, r, warnings, err := a.restore(x.to)
		if value != x.value || r.Full != x.from || warnings != "" || err != nil {
			t.Errorf("%+v: %s from %s, warnings %q, %v; want %s", x.to, value, r.Full, warnings, err, x.value)
		}
	}
	for want, to := range map[string]Moment{
		"oldest full backup has revision 5 (2026-01-31T12:00:03.000Z)": {Revision: 4},
		"the newest revision is 17":                                    {Revision: 18},
		"oldest full backup ":                                          {Time: start.Add(time.Second)},
	} {
		_, _, _, err := a.restore(to)
		if !errors.Is(err, errMissing) || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", to, err, want)
		}
	}
}

// TestDamage checks that a damaged full backup is replaced by the previous one, with a warning. A
// damaged piece of the log makes the restore fail, unless another piece contains the same entries.
func TestDamage(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.write(3)
	first := a.full()
	a.write(6)
	second := a.full()
	a.write(9)
	long, last := a.piece(4, 7), a.piece(8, 9)
	a.damage(second)
	value, r, warnings, err := a.restore(Moment{})
	if value != "9+" || r.Full != first || r.Entries != 6 || !strings.Contains(warnings, second) ||
		err != nil {
		t.Errorf("%s of %+v, warnings %q, %v", value, r, warnings, err)
	}
	a.damage(last)
	_, _, _, err = a.restore(Moment{})
	if !errors.Is(err, server.ErrBackup) || !strings.Contains(err.Error(), last) ||
		!strings.Contains(err.Error(), "--to-revision 13") {
		t.Errorf("a damaged piece: %v", err)
	}
	if value, _, _, err := a.restore(Moment{Revision: 13}); value != "7+" || err != nil {
		t.Errorf("the suggested restore: %s, %v", value, err)
	}
	a.damage(long)
	a.piece(4, 6)
	a.piece(7, 9)
	value, _, warnings, err = a.restore(Moment{})
	if value != "9+" || !strings.Contains(warnings, long) || err != nil {
		t.Errorf("with another piece: %s, warnings %q, %v", value, warnings, err)
	}
	a.damage(first)
	_, _, warnings, err = a.restore(Moment{})
	if !errors.Is(err, errMissing) || !strings.Contains(warnings, first) ||
		!strings.Contains(err.Error(), second+" cannot be used; "+first+" cannot be used") {
		t.Errorf("without an intact full backup: warnings %q, %v", warnings, err)
	}
	bad := 0
	b, err := Open(a.dir, "")
	if err != nil {
		t.Fatal(err)
	}
	n, err := b.Verify(t.Context(), func(_ string, err error) {
		if err != nil {
			bad++
		}
	})
	if n != 4 || bad != 4 || err != nil {
		t.Errorf("Verify returned %d and reported %d, %v; want 4", n, bad, err)
	}
}

// TestGap checks that a moment in a gap of the log is rejected, and one next to the gap is
// restored.
func TestGap(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.write(3)
	a.full()
	a.write(6)
	a.full()
	a.write(9)
	gone := a.piece(4, 5)
	a.piece(7, 8)
	a.remove(gone)
	a.piece(4, 4)
	for value, to := range map[string]Moment{
		"4+": {Revision: 7}, "8": {Revision: 14}, "6+": {Revision: 11}, "8+": {},
		"7+": {Time: start.Add(7 * time.Second)},
	} {
		if got, _, warnings, err := a.restore(to); got != value || warnings != "" || err != nil {
			t.Errorf("%+v: %s, warnings %q, %v, want %s", to, got, warnings, err, value)
		}
	}
	for _, to := range []Moment{{Revision: 8}, {Revision: 10}, {Time: start.Add(5 * time.Second)}} {
		_, _, _, err := a.restore(to)
		if !errors.Is(err, errMissing) || !strings.Contains(err.Error(), "gap after revision 7") {
			t.Errorf("%+v: %v", to, err)
		}
	}
	b, err := Open(a.dir, "")
	if err != nil {
		t.Fatal(err)
	}
	var warnings []string
	if n, err := b.Verify(t.Context(), func(name string, err error) {
		if err != nil {
			warnings = append(warnings, err.Error())
		}
	}); n != 1 || err != nil || !strings.Contains(strings.Join(warnings, ""), "ends at entry 4") {
		t.Errorf("verify: %d, %v, %v", n, warnings, err)
	}
}

// TestForeignAfterEnd checks that a piece of another history beyond the end of the log does not
// count as a gap.
func TestForeignAfterEnd(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.write(3)
	a.full()
	a.write(9)
	a.piece(4, 4)
	a.history.Restore = 9
	a.piece(7, 8)
	if got, _, warnings, err := a.restore(Moment{}); got != "4+" || warnings != "" || err != nil {
		t.Errorf("%s, warnings %q, %v", got, warnings, err)
	}
	if _, _, _, err := a.restore(Moment{Revision: 9}); !errors.Is(err, errMissing) ||
		!strings.Contains(err.Error(), "the newest revision is 7") {
		t.Error(err)
	}
}

// TestForeign checks that another cluster's object is not used, even if its name fits.
func TestForeign(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.write(3)
	name := a.full()
	for _, h := range []backup.History{{Cluster: testCluster + 1}, {Cluster: testCluster, Restore: 5}} {
		a.save(backup.ManifestName, backup.Manifest(h))
		_, _, warnings, err := a.restore(Moment{})
		if !errors.Is(err, errMissing) || !strings.Contains(warnings, "it belongs to cluster 00000000000000c1") {
			t.Errorf("%s: warnings %q, %v", name, warnings, err)
		}
	}
	a.remove(backup.ManifestName)
	if _, _, _, err := a.restore(Moment{}); !errors.Is(err, errMissing) ||
		!strings.Contains(err.Error(), "no member has made backups") {
		t.Errorf("without a manifest: %v", err)
	}
}

// TestTwoHistories covers a target with backups from two clusters, one of which was restored from
// the other's backups. The state of the cluster that owns the target is restored, and Verify
// reports the rest.
func TestTwoHistories(t *testing.T) {
	t.Parallel()
	old, restored := newArchive(t), newArchive(t)
	old.write(3)
	old.full()
	dir := filepath.Join(t.TempDir(), "d")
	c := server.DefaultConfig()
	c.DataDir = dir
	b, err := Open(old.dir, "")
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.Restore(t.Context(), Moment{}, c, server.RestoreOptions{KeepRevision: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	restored.machine = restored.open(dir)
	restored.entries = old.entries
	restored.history.Restore = restored.machine.View().Restore
	old.write(5)
	old.piece(4, 5)
	restored.write(8)
	restored.dir = old.dir
	strange := []string{restored.full(), restored.piece(4, 8)}
	value, r, warnings, err := old.restore(Moment{})
	if value != "5+" || err != nil || r.Entries != 2 || strings.Count(warnings, "since restore") != 1 {
		t.Errorf("restored %q, %+v, warnings %q, %v", value, r, warnings, err)
	}
	var bad []string
	n, err := b.Verify(t.Context(), func(name string, err error) {
		if err != nil && strings.Contains(err.Error(), "since restore") {
			bad = append(bad, name)
		}
	})
	if !slices.Equal(bad, strange) || n < 2 || err != nil {
		t.Errorf("Verify returned %d and reported %v, want %v; %v", n, bad, strange, err)
	}
}

// TestRefusals checks that a restore into a nonempty directory fails before anything is read, and
// that a canceled restore leaves nothing behind.
func TestRefusals(t *testing.T) {
	t.Parallel()
	a := newArchive(t)
	a.write(3)
	a.full()
	b, err := Open(a.dir, "")
	if err != nil {
		t.Fatal(err)
	}
	c := server.DefaultConfig()
	c.DataDir = a.dir
	_, err = b.Restore(t.Context(), Moment{}, c, server.RestoreOptions{}, nil)
	if !errors.Is(err, server.ErrNotEmpty) {
		t.Errorf("into a directory with data: %v", err)
	}
	c.DataDir = filepath.Join(t.TempDir(), "d")
	_, err = b.Restore(t.Context(), Moment{1, start}, c, server.RestoreOptions{}, nil)
	if !errors.Is(err, server.ErrConfig) {
		t.Errorf("two moments: %v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	_, err = b.Restore(ctx, Moment{}, c, server.RestoreOptions{}, nil)
	if _, exists := os.Stat(c.DataDir); !errors.Is(err, context.Canceled) || exists == nil {
		t.Errorf("canceled: %v, %v", err, exists)
	}
}

func TestParseTime(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Time{
		"15m": start.Add(-15 * time.Minute), "0s": start,
		"2026-01-31T12:00:00Z": start, "2026-01-31T13:00:00.5+01:00": start.Add(time.Second / 2),
	} {
		if got, err := ParseTime(text, start); !got.Equal(want) || err != nil {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "-1m", "yesterday", "2026-01-31 12:00", "1700000000"} {
		if _, err := ParseTime(text, start); !errors.Is(err, errTime) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
