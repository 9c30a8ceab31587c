package harness

import (
	"context"
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"

	"leasehold.dev/test/process"
)

// Binary is the server under test: the binary named by the -server flag or, by default, leasehold.
// Leasehold is built when a test first needs it. The zero value is ready to use.
type Binary struct {
	given string

	once sync.Once
	dir  string // directory of the built binary
	path string
	err  error
}

// Main parses the flags, calls Parallel, runs the tests, removes any binary built for them, and
// returns the exit code. TestMain calls it.
func (b *Binary) Main(m *testing.M) int {
	flag.StringVar(&b.given, "server", "", "`binary` to test (default: built now)")
	Parallel()
	code := m.Run()
	if b.dir == "" {
		return code
	}
	if err := os.RemoveAll(b.dir); err != nil {
		fmt.Fprintln(os.Stderr, "harness:", err)
		return 1
	}
	return code
}

// Path returns the path of the binary, building it if necessary. It can be called concurrently.
func (b *Binary) Path(t testing.TB) string {
	t.Helper()
	if b.given != "" {
		return b.given
	}
	b.once.Do(func() { b.path, b.err = b.build() })
	if b.err != nil {
		t.Fatal(b.err)
	}
	return b.path
}

func (b *Binary) build() (path string, err error) {
	if b.dir, err = os.MkdirTemp("", "leasehold-test-"); err != nil {
		return "", err
	}
	if err := process.DependOnSources(); err != nil {
		return "", err
	}
	return process.Build(context.Background(), b.dir)
}
