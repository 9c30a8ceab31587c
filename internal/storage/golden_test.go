package storage_test

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"leasehold.dev/internal/storage"
	"leasehold.dev/test/crashfs"
)

var rewrite = flag.Bool("rewrite", false, "write testdata")

// TestGolden checks that the files of a small directory have not changed since the format was
// fixed, and that such a directory can be read. The golden file contains all 32-byte lines that are
// not zero.
func TestGolden(t *testing.T) {
	files, m := small(t, true)
	name := filepath.Join("testdata", "v1", "directory.txt")
	var b strings.Builder
	all := contents(t, files)
	for _, path := range slices.Sorted(maps.Keys(all)) {
		was := all[path]
		fmt.Fprintf(&b, "%s %d\n", path, len(was))
		for at := 0; at < len(was); at += 32 {
			line := was[at:min(at+32, len(was))]
			if !bytes.Equal(line, make([]byte, len(line))) {
				fmt.Fprintf(&b, "%6d %x\n", at, line)
			}
		}
	}
	if *rewrite {
		fatal(t, os.MkdirAll(filepath.Dir(name), 0o755))
		fatal(t, os.WriteFile(name, []byte(b.String()), 0o600))
	}
	want, err := os.ReadFile(name)
	fatal(t, err)
	if string(want) != b.String() {
		t.Error("the files differ from testdata; run with -rewrite to update it")
	}
	then := crashfs.New()
	fatal(t, then.MkdirAll("data/log"))
	var f storage.File
	for line := range strings.Lines(string(want)) {
		var path, text string
		var size, at int64
		if _, err := fmt.Sscanf(line, "%s %d", &path, &size); err == nil && line[0] == 'd' {
			f, err = then.Create(path, size)
			fatal(t, err)
			continue
		}
		_, err := fmt.Sscanf(line, "%d %s", &at, &text)
		fatal(t, err)
		bytes, err := hex.DecodeString(text)
		fatal(t, err)
		_, err = f.WriteAt(bytes, at)
		fatal(t, err)
	}
	if refused, err := verdict(then, m); refused || err != nil {
		t.Errorf("the directory in testdata: refused %v, %v", refused, err)
	}
}
