package main

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// built builds the sample package once and returns a command that runs its tests.
func built(t *testing.T) command {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "sample.test")
	build := exec.Command("go", "test", "-c", "-vet=off", "-o", binary, "./testdata/sample")
	out, err := build.CombinedOutput()
	if err != nil {
		t.Fatalf("building the sample: %v\n%s", err, out)
	}
	return func(args []string, read func(io.Reader) error) error {
		tool := []string{"tool", "test2json", "-p", args[len(args)-1], binary, "-test.v=test2json"}
		for _, a := range args[:len(args)-1] {
			if strings.HasPrefix(a, "-") {
				a = "-test." + a[1:]
			}
			tool = append(tool, a)
		}
		c := exec.Command("go", tool...)
		out, err := c.Output()
		if rerr := read(strings.NewReader(string(out))); rerr != nil {
			return rerr
		}
		return err
	}
}

// TestRetries runs the sample package with planned failures. Only marked tests may be retried, at
// most twice, and only if nothing else failed.
func TestRetries(t *testing.T) {
	goTest := built(t)
	for _, tc := range []struct {
		name     string
		failures []string // files that each make a sample test fail once
		passes   bool
		retries  int
		flaky    []string
	}{
		{name: "all pass", passes: true},
		{
			name: "a marked test fails once", failures: []string{"TestMarked.1"}, passes: true, retries: 1,
			flaky: []string{"sample.TestMarked (1 of 2 runs failed)"},
		},
		{
			name: "two marked tests fail", failures: []string{"TestMarked.1", "TestMarked.2", "TestOther.1"},
			passes: true, retries: 3, flaky: []string{
				"sample.TestMarked (2 of 3 runs failed)", "sample.TestOther (1 of 2 runs failed)",
			},
		},
		{
			name:     "a marked test fails three times",
			failures: []string{"TestMarked.1", "TestMarked.2", "TestMarked.3"}, retries: 2,
		},
		{name: "an unmarked test fails once", failures: []string{"TestUnmarked.1"}},
		{
			name:     "a marked and an unmarked test fail",
			failures: []string{"TestMarked.1", "TestUnmarked.1"},
		},
		{name: "a marked test panics", failures: []string{"panic"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("FAILURES", dir)
			for _, f := range tc.failures {
				if err := os.WriteFile(filepath.Join(dir, f), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var out strings.Builder
			passed := run(&out, goTest, []string{"-count=1"}, []string{"sample"})
			if passed != tc.passes {
				t.Errorf("passed: %t, expected %t", passed, tc.passes)
			}
			if n := strings.Count(out.String(), "\nretrying "); n != tc.retries {
				t.Errorf("%d retries, expected %d", n, tc.retries)
			}
			if n := strings.Count(out.String(), "FLAKY: "); n != len(tc.flaky) {
				t.Errorf("%d lines FLAKY, expected %d", n, len(tc.flaky))
			}
			for _, f := range tc.flaky {
				if !strings.Contains(out.String(), "FLAKY: "+f+"\n") {
					t.Errorf("no line FLAKY for %q", f)
				}
			}
			if len(tc.failures) > 0 && !strings.Contains(out.String(), "as planned") {
				t.Error("the output of the failed test is missing")
			}
			if t.Failed() {
				t.Logf("output:\n%s", out.String())
			}
		})
	}
}

// TestBuildFailure checks that a package that does not build fails without a retry.
func TestBuildFailure(t *testing.T) {
	var out strings.Builder
	if run(&out, goTest, nil, []string{"./testdata/missing"}) {
		t.Error("a missing package passed")
	}
	if strings.Contains(out.String(), "retrying") {
		t.Errorf("a missing package was retried:\n%s", out.String())
	}
}
