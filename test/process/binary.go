package process

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// Build makes a leasehold binary in dir, from the module that the working
// directory is in, and returns its path.
func Build(ctx context.Context, dir string) (string, error) {
	path, err := filepath.Abs(filepath.Join(dir, "leasehold"))
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, "leasehold.dev/cmd/leasehold")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build leasehold: %w\n%s", err, out)
	}
	return path, nil
}

// DependOnSources looks at every source file of the module that the working
// directory is in, because go test reuses a result until a file that the test
// looked at has changed, and it does not see what Build reads.
func DependOnSources() error {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return fmt.Errorf("find the sources: %w", err)
	}
	root := strings.TrimSpace(string(dir))
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
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
}

// Binary is the server that tests run: the one that a flag names, else our own,
// built when it is first asked for. The zero value is ready; it is a flag.Value.
type Binary struct {
	given string

	once sync.Once
	dir  string // of what was built
	path string
	err  error
}

// Set implements flag.Value.
func (b *Binary) Set(path string) error {
	b.given = path
	return nil
}

// String implements flag.Value.
func (b *Binary) String() string { return b.given }

// Path returns the path of the binary.
func (b *Binary) Path() (string, error) {
	if b.given != "" {
		return b.given, nil
	}
	b.once.Do(func() { b.path, b.err = b.build() })
	return b.path, b.err
}

func (b *Binary) build() (path string, err error) {
	if b.dir, err = os.MkdirTemp("", "leasehold-test-"); err != nil {
		return "", err
	}
	if err := DependOnSources(); err != nil {
		return "", err
	}
	return Build(context.Background(), b.dir)
}

// Remove removes what was built. Nothing may ask for the path any more.
func (b *Binary) Remove() error {
	if b.dir == "" {
		return nil
	}
	return os.RemoveAll(b.dir)
}
