// Package corpus keeps records of a format as text, for tests: what a release has written, all
// later ones must read, and write alike while they write that version. So a corpus of a version
// is changed only before that is released, by go test PACKAGE -update, and is never deleted.
package corpus

import (
	"bytes"
	"encoding/hex"
	"flag"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the corpora of formats anew")

// Record is one record of a format, by a name that no other in its file has.
type Record struct {
	Name  string
	Bytes []byte
}

// width is how many bytes of a record stand in one line.
const width = 40

// Check compares records with those of a file, and reports each that differs. With -update it
// writes the file.
func Check(t *testing.T, file string, records []Record) {
	t.Helper()
	if *update {
		write(t, file, records)
	}
	kept := Read(t, file)
	for _, r := range records {
		i := slices.IndexFunc(kept, func(k Record) bool { return k.Name == r.Name })
		switch {
		case i < 0:
			t.Errorf("%s: no record %q; a release may not have had it, then add it with -update",
				file, r.Name)
			continue
		case !bytes.Equal(kept[i].Bytes, r.Bytes):
			t.Errorf("%s: %s is written as\n%x\nand was\n%x", file, r.Name, r.Bytes, kept[i].Bytes)
		}
		kept = slices.Delete(kept, i, i+1)
	}
	for _, k := range kept {
		t.Errorf("%s: nothing is %q any more", file, k.Name)
	}
}

func write(t *testing.T, file string, records []Record) {
	t.Helper()
	var b strings.Builder
	for _, r := range records {
		b.WriteString(r.Name + "\n")
		for line := range slices.Chunk(r.Bytes, width) {
			b.WriteString("\t" + hex.EncodeToString(line) + "\n")
		}
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// Read returns the records of a file.
func Read(t testing.TB, file string) (records []Record) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		digits, more := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "\t")
		if !more {
			records = append(records, Record{Name: digits})
			continue
		}
		b, err := hex.DecodeString(digits)
		if err != nil || len(records) == 0 {
			t.Fatalf("%s: %q: %v", file, line, err)
		}
		last := &records[len(records)-1]
		last.Bytes = append(last.Bytes, b...)
	}
	return records
}

// Flipped yields a record with each one of its bits changed, and which bit of which byte it is.
// The bytes are good until the next.
func Flipped(b []byte) iter.Seq2[[]byte, [2]int] {
	return func(yield func([]byte, [2]int) bool) {
		b := bytes.Clone(b)
		for at := range b {
			for bit := range 8 {
				b[at] ^= 1 << bit
				if !yield(b, [2]int{bit, at}) {
					return
				}
				b[at] ^= 1 << bit
			}
		}
	}
}
