// Package corpus stores encoded records of a format as text, for tests. Every later release must be
// able to read what a release has written, and must write the same bytes as long as it writes that
// version of the format. So the corpus of a version, which go test PACKAGE -update rewrites, must
// not change once the version is released, and is never deleted.
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

// Record is one record of a format. Its name is unique within its file.
type Record struct {
	Name  string
	Bytes []byte
}

// width is the number of record bytes per line.
const width = 40

// Check compares records with the records in a file and reports each difference. With -update, it
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

// Read reads the records in a file.
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

// Flipped yields copies of a record, each with one bit flipped, and the position of that bit. The
// bytes are valid until the next iteration.
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
