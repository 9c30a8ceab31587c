package process

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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
