package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// disk accepts a limited number of bytes and then fails partway through a write, until it is given
// more room.
type disk struct {
	mu   sync.Mutex // guards the following fields
	data bytes.Buffer
	room int
	hang chan struct{} // if not nil, writes block until it is closed
}

// Write implements io.Writer.
func (d *disk) Write(b []byte) (int, error) {
	if d.hang != nil {
		<-d.hang
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	n := min(len(b), d.room)
	d.room -= n
	d.data.Write(b[:n])
	if n < len(b) {
		return n, errors.New("no space left")
	}
	return n, nil
}

// Close implements io.Closer.
func (*disk) Close() error { return nil }

// String returns what was written.
func (d *disk) String() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.data.String()
}

func newLog(t *testing.T, to *disk, stops bool) *Log {
	t.Helper()
	o := Options{File: "stdout", WhenFull: drop}
	if stops {
		o.WhenFull = stop
	}
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	l.to = to
	return l
}

func value(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	var m dto.Metric
	if err := c.Write(&m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

// FuzzEntry checks that for any names, keys and errors, a record is a single line whose fields
// contain the given values, without extra fields. CVE-2026-84439 of ZooKeeper let a name forge
// lines.
func FuzzEntry(f *testing.F) {
	f.Add("alice", "app/a", []byte("a\nb"), []byte{0xff})
	f.Add("a\",\"outcome\":\"ok", "\u2028\u2029\r\n", []byte(`"}{"event":"call"}`), []byte(nil))
	f.Add(strings.Repeat("x", maxText+1), "\xc3\x28", []byte(`{"base64":"eA==","cut":false}`),
		[]byte{0})
	f.Fuzz(func(t *testing.T, principal, text string, key, end []byte) {
		e := Entry{
			Time: time.Unix(1, 0).UTC(), Event: "call", Call: "/p.S/M",
			Principal: Text(principal), Error: Text(text), Outcome: Denied,
		}
		e.AddKey(key, end)
		whole := e.append(nil)
		line, ended := bytes.CutSuffix(whole, []byte("\n"))
		if !ended || bytes.ContainsAny(line, "\n\r\u2028\u2029\x00\x1b") || !utf8.Valid(line) {
			t.Fatalf("it is no line: %q", line)
		}
		var got map[string]json.RawMessage
		if err := json.Unmarshal(line, &got); err != nil {
			t.Fatal(err)
		}
		for name, raw := range got {
			switch name {
			case "time", "keys":
			case "event", "call", "outcome":
				want := map[string]string{"event": "call", "call": "/p.S/M", "outcome": "denied"}[name]
				if string(raw) != `"`+want+`"` {
					t.Fatalf("%s is %s", name, raw)
				}
			case "principal":
				same(t, raw, principal)
			case "error":
				same(t, raw, text)
			default:
				t.Fatalf("a field %s more: %s", name, line)
			}
		}
		var keys []map[string]json.RawMessage
		if err := json.Unmarshal(got["keys"], &keys); err != nil || len(keys) != 1 {
			t.Fatalf("%s: %v", got["keys"], err)
		}
		same(t, keys[0]["key"], string(key))
		if end := string(end); end != "" {
			same(t, keys[0]["end"], end)
		}
	})
}

// same checks that the value in a record is the given text or a prefix of it.
func same(t *testing.T, raw json.RawMessage, text string) {
	t.Helper()
	var plain string
	if json.Unmarshal(raw, &plain) == nil {
		if plain != text {
			t.Fatalf("%q stands as %s", text, raw)
		}
		return
	}
	var coded struct {
		Base64 []byte
		Cut    bool
	}
	if err := json.Unmarshal(raw, &coded); err != nil {
		t.Fatal(err)
	}
	if coded.Cut != (len(text) > maxText) || string(coded.Base64) != text[:min(len(text), maxText)] {
		t.Fatalf("%q stands as %s", text, raw)
	}
}

// TestManyKeys checks that keys beyond the limit are only counted.
func TestManyKeys(t *testing.T) {
	var e Entry
	for range maxKeys + 3 {
		e.AddKey([]byte("k"), nil)
	}
	if len(e.Keys) != maxKeys || e.More != 3 {
		t.Errorf("%d keys and %d more", len(e.Keys), e.More)
	}
}

// TestFullDiskDrops checks that with "drop", a full disk blocks no call and lost records are
// counted. Once there is room again, only complete lines are written.
func TestFullDiskDrops(t *testing.T) {
	to := &disk{room: 150}
	l := newLog(t, to, false)
	for i := range 6 {
		if err := l.Ready(); err != nil {
			t.Error(err)
		}
		if err := l.Record(&Entry{Event: "call", Call: Text(strings.Repeat("x", 40))}); err != nil {
			t.Error(err)
		}
		if err := l.Flush(); (err != nil) != (i >= 1 && i < 4) {
			t.Errorf("flush %d: %v", i, err)
		}
		if i == 3 {
			to.room = 1 << 20
		}
	}
	if w, d := value(t, l.written), value(t, l.dropped); w != 3 || d != 3 {
		t.Errorf("%v are written and %v dropped", w, d)
	}
	whole := 0
	for line := range strings.Lines(to.String()) {
		if json.Valid([]byte(line)) && strings.HasSuffix(line, "\n") {
			whole++
		}
	}
	if whole != 3 {
		t.Errorf("%d whole lines in %q", whole, to.String())
	}
}

// TestFullDiskStops checks that with "stop", a call fails if its record cannot be written, and
// every later call fails until there is room.
func TestFullDiskStops(t *testing.T) {
	to := &disk{room: 1 << 20}
	l := newLog(t, to, true)
	if err := errors.Join(l.Ready(), l.Record(&Entry{Event: "call"})); err != nil {
		t.Error(err)
	}
	to.room = 3
	if err := l.Record(&Entry{Event: "call"}); !errors.Is(err, errUnwritten) {
		t.Errorf("on a full disk: %v", err)
	}
	if err := l.Ready(); !errors.Is(err, errUnwritten) {
		t.Errorf("the next call: %v", err)
	}
	to.room = 1 << 20
	if err := errors.Join(l.Ready(), l.Record(&Entry{Event: "call"})); err != nil {
		t.Errorf("there is room: %v", err)
	}
	if err := l.Ready(); err != nil {
		t.Error(err)
	}
	if n := strings.Count(to.String(), `"event":"resumed"`); n != 1 {
		t.Errorf("the log says %d times that there was a gap", n)
	}
}

// TestDiskHangs checks that a hung disk delays a call only with "stop", and only for hungTime. The
// member can stop meanwhile, and records are written again once the disk responds (T43).
func TestDiskHangs(t *testing.T) {
	for _, stops := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			to := &disk{room: 1 << 20, hang: make(chan struct{})}
			l := newLog(t, to, stops)
			began := time.Now()
			first := l.Record(&Entry{Event: "call"})
			if took := time.Since(began); (first != nil) != stops || stops != (took == hungTime) {
				t.Errorf("stop %v: the first after %v: %v", stops, took, first)
			}
			began = time.Now()
			for range 10 {
				if err := errors.Join(l.Ready(), l.Record(&Entry{Event: "call"})); (err != nil) != stops {
					t.Errorf("stop %v: a later one: %v", stops, err)
				}
			}
			if took := time.Since(began); took != 0 {
				t.Errorf("stop %v: later ones waited %v", stops, took)
			}
			if err := l.Close(); err == nil && !stops {
				t.Error("closed as if all were written")
			}
			close(to.hang)
			synctest.Wait()
			if err := errors.Join(l.Ready(), l.Record(&Entry{Event: "call"}), l.Close()); err != nil {
				t.Errorf("stop %v: after it hung: %v", stops, err)
			}
		})
	}
}

// TestFlushDuringWrite checks that Flush waits for a write in progress, but does not hang if no
// write is running.
func TestFlushDuringWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &disk{room: 1 << 20, hang: make(chan struct{})}
		l := newLog(t, to, false)
		var flushes sync.WaitGroup
		flush := func() {
			if err := l.Flush(); err != nil {
				t.Error(err)
			}
		}
		_ = l.Record(&Entry{Event: "call"})
		flushes.Go(flush)
		synctest.Wait() // the write is in progress
		began := time.Now()
		flushes.Go(flush)
		synctest.Wait()
		time.Sleep(hungTime / 2)
		close(to.hang)
		flushes.Wait()
		flush()
		if took := time.Since(began); took != hungTime/2 {
			t.Errorf("the flushes took %v", took)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestRunWrites checks that records that no call waits for are written after a short delay, and
// when Run ends.
func TestRunWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &disk{room: 1 << 20}
		l := newLog(t, to, false)
		var running sync.WaitGroup
		ctx, end := context.WithCancel(t.Context())
		running.Go(func() { l.Run(ctx, func(err error) { t.Error(err) }) })
		_ = l.Record(&Entry{Event: "call"})
		synctest.Wait()
		if to.String() != "" {
			t.Error("it is written by itself")
		}
		time.Sleep(batchTime)
		synctest.Wait()
		if strings.Count(to.String(), "\n") != 1 {
			t.Errorf("after a while: %q", to.String())
		}
		_ = l.Record(&Entry{Event: "call"})
		end()
		running.Wait()
		if strings.Count(to.String(), "\n") != 2 {
			t.Errorf("at the end: %q", to.String())
		}
	})
}

// TestFile checks that a file is appended to, and that only its owner can read it.
func TestFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "audit")
	for range 2 {
		l, err := Open(Options{File: file, MaxMegabytes: 1, MaxFiles: 1})
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(l.Record(&Entry{Event: "call"}), l.Close()); err != nil {
			t.Fatal(err)
		}
	}
	data, err := os.ReadFile(file)
	if err != nil || bytes.Count(data, []byte{'\n'}) != 2 {
		t.Errorf("%q, %v", data, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if _, err := Open(Options{File: filepath.Join(file, "x")}); err == nil {
		t.Error("a file that cannot be is opened")
	}
}

// TestFileEndsInsideLine checks that a partial line left in the file by a crash does not damage
// another record.
func TestFileEndsInsideLine(t *testing.T) {
	for before, want := range map[string]int{
		"": 1, "{}\n": 2, "{}\n{\"time": 3, "{": 2, "{}": 2,
	} {
		file := filepath.Join(t.TempDir(), "audit")
		if err := os.WriteFile(file, []byte(before), 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := Open(Options{File: file, MaxMegabytes: 1, MaxFiles: 1})
		if err != nil {
			t.Fatal(err)
		}
		err = errors.Join(l.Record(&Entry{Event: "call"}), l.Flush(),
			l.Record(&Entry{Event: "call"}), l.Close())
		data, _ := os.ReadFile(file)
		lines := strings.Split(string(data), "\n")
		if err != nil || len(lines) != want+2 || !json.Valid([]byte(lines[want-1])) {
			t.Errorf("after %q: %q, %v", before, lines, err)
		}
	}
}

// TestRotation checks that a full file is rotated and the configured number of old files is kept.
// Every record must be a complete line in one of them.
func TestRotation(t *testing.T) {
	const perBatch, batches = 1000, 24 // about 0.15 MB each
	for _, keep := range []int{0, 2} {
		dir := t.TempDir()
		l, err := Open(Options{File: filepath.Join(dir, "audit"), MaxMegabytes: 1, MaxFiles: keep})
		if err != nil {
			t.Fatal(err)
		}
		for range batches {
			for range perBatch {
				_ = l.Record(&Entry{Event: "call", Call: Text(strings.Repeat("x", 100))})
			}
			if err := l.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		lines, files := wholeLines(t, dir)
		if keep == 0 && (files < 3 || lines != perBatch*batches) {
			t.Errorf("all kept: %d files with %d lines", files, lines)
		}
		// The library removes old files asynchronously.
		for ; keep > 0 && files != keep+1 && t.Context().Err() == nil; _, files = wholeLines(t, dir) {
			runtime.Gosched()
		}
	}
}

// wholeLines counts the lines in all files of a directory and checks that each one is a record.
func wholeLines(t *testing.T, dir string) (lines, files int) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range list {
		data, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if errors.Is(err, os.ErrNotExist) {
			continue // already removed by the rotation
		}
		if err != nil || len(data) > 1<<20 {
			t.Fatalf("%s: %d bytes, %v", f.Name(), len(data), err)
		}
		files++
		for line := range bytes.Lines(data) {
			if !json.Valid(line) {
				t.Fatalf("%s has %q", f.Name(), line)
			}
			lines++
		}
	}
	return lines, files
}

// TestBacklogExceedsFileSize checks that records waiting for a slow disk are not lost if their
// total exceeds the maximum file size.
func TestBacklogExceedsFileSize(t *testing.T) {
	dir := t.TempDir()
	l, err := Open(Options{File: filepath.Join(dir, "audit"), MaxMegabytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	const n = 20_000
	for range n {
		_ = l.Record(&Entry{Event: "call", Call: Text(strings.Repeat("x", 100))})
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if lines, files := wholeLines(t, dir); lines != n || files < 3 {
		t.Errorf("%d lines in %d files", lines, files)
	}
}
