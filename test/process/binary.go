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

// Build builds a leasehold binary in dir and returns its path. It uses the sources of the module
// that contains the working directory or, if that is a different module, the sources named in its
// go.mod.
func Build(ctx context.Context, dir string) (string, error) {
	path, err := filepath.Abs(filepath.Join(dir, "leasehold"))
	if err != nil {
		return "", err
	}
	root, err := sources(ctx)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, "./cmd/leasehold")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build leasehold: %w\n%s", err, out)
	}
	return path, nil
}

// sources finds the directory of leasehold's module. The binary is built there, because other
// modules that require leasehold, such as bench, lack some of its dependencies.
func sources(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "leasehold.dev")
	dir, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("find the sources: %w", err)
	}
	return strings.TrimSpace(string(dir)), nil
}

// DependOnSources stats every source file that Build reads. go test reuses a cached result until a
// file that the test opened or examined has changed, and it does not track the files that Build
// reads.
func DependOnSources() error {
	root, err := sources(context.Background())
	if err != nil {
		return err
	}
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
