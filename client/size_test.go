package client_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"leasehold.dev/test/tier"
)

// TestSize checks how much the client adds to a program: the number of modules and the size of the
// executable.
func TestSize(t *testing.T) {
	tier.RealTime(t)
	const mostModules, mostBytes = 8, 14 << 20
	out, err := exec.Command("go", "list", "-deps", "-f",
		"{{with .Module}}{{.Path}}{{end}}", "leasehold.dev/client").Output()
	if err != nil {
		t.Fatal(err)
	}
	modules := map[string]bool{}
	for _, m := range strings.Fields(string(out)) {
		modules[m] = m != "leasehold.dev"
	}
	delete(modules, "leasehold.dev")
	if len(modules) > mostModules {
		t.Errorf("the client needs %d modules: %v", len(modules), modules)
	}
	dir := t.TempDir()
	size := func(code string) int64 {
		file, program := filepath.Join(dir, "main.go"), filepath.Join(dir, "program")
		if err := os.WriteFile(file, []byte("package main\n\n"+code), 0o600); err != nil {
			t.Fatal(err)
		}
		build := exec.Command("go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, file)
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		i, err := os.Stat(program)
		if err != nil {
			t.Fatal(err)
		}
		return i.Size()
	}
	empty := size("import \"fmt\"\n\nfunc main() { fmt.Println() }\n")
	with := size(`import (
	"fmt"

	"leasehold.dev/client"
)

func main() { fmt.Println(client.New(client.Config{})) }
`)
	t.Logf("%d modules, %d bytes", len(modules), with-empty)
	if with-empty > mostBytes {
		t.Errorf("the client adds %d bytes, %d are the most", with-empty, mostBytes)
	}
}
