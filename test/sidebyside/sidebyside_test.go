package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFaultsAbsent provokes the faults that take seconds in a leasehold that is built
// now, and expects none of them: those of one member. (T18 takes more than a minute,
// and is etcd's API's.)
func TestFaultsAbsent(t *testing.T) {
	if testing.Short() {
		t.Skip("takes about a minute")
	}
	dependOnSources(t)
	var out bytes.Buffer
	clean, err := run(t.Context(), &options{match: "^T1[567]"}, &out)
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	if !clean {
		t.Error("a fault was shown")
	}
	if got := strings.Count(out.String(), "leasehold"); got != 4 {
		t.Errorf("%d results", got)
	}
	t.Log("\n" + out.String())
}

// dependOnSources looks at every source file of the repository, since go test
// reuses a result until a file that the test looked at has changed, and does not
// see what the build of the binary reads.
func dependOnSources(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == ".git":
			return fs.SkipDir
		case filepath.Ext(path) == ".go" || d.Name() == "go.mod":
			_, err = os.Stat(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
