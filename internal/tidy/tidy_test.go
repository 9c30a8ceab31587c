package tidy

import (
	"cmp"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// perFile are the rules that look at one file at a time.
var perFile = []func(*source) []finding{
	checkLayers, checkPure, checkFuncs, checkFile, checkStructs, checkWords, checkDocs, checkSleep,
}

// TestRules holds every file of the repository against the rules.
func TestRules(t *testing.T) {
	var found []finding
	files := load(t)
	for _, s := range files {
		for _, check := range perFile {
			found = append(found, check(s)...)
		}
	}
	for _, p := range byPackage(files) {
		found = append(found, checkPackageComment(p)...)
	}
	slices.SortStableFunc(found, func(a, b finding) int {
		return cmp.Or(strings.Compare(a.file, b.file), cmp.Compare(a.line, b.line))
	})
	left, stale := excuse(found, exceptions)
	for _, f := range left {
		t.Error(f)
	}
	for _, e := range stale {
		t.Errorf("exceptions_test.go: nothing breaks %q at %q any more: drop the row", e.rule, e.at)
	}
}

// TestModulesInside: the rules are for the modules inside this one as well.
func TestModulesInside(t *testing.T) {
	inside := func(s *source) bool { return within(s.dir(), "bench") }
	if !slices.ContainsFunc(load(t), inside) {
		t.Error("no file of bench is looked at")
	}
}

// excuse takes the findings out that have an exception, and returns the rest
// and the exceptions that were not needed.
func excuse(found []finding, list []exception) (left []finding, stale []exception) {
	used := make([]bool, len(list))
	for _, f := range found {
		i := slices.IndexFunc(list, func(e exception) bool { return e.rule == f.rule && e.at == f.at })
		if i < 0 {
			left = append(left, f)
			continue
		}
		used[i] = true
	}
	for i, e := range list {
		if !used[i] {
			stale = append(stale, e)
		}
	}
	return left, stale
}

// TestExceptionsArgue keeps every exception's reason.
func TestExceptionsArgue(t *testing.T) {
	for _, e := range exceptions {
		if len(strings.Fields(e.why)) < 4 {
			t.Errorf("the exception for %q at %q does not say why", e.rule, e.at)
		}
	}
}

// TestCommitSubjects reads the newest commits. Without git, or outside a
// checkout (a module downloaded by a user), there is nothing to read.
func TestCommitSubjects(t *testing.T) {
	// Looked at so that go test does not reuse the result after a commit. It may
	// be missing, as git may.
	_, _ = os.Stat(filepath.Join(root(t), ".git", "logs", "HEAD"))
	cmd := exec.Command("git", "log", "-n", "100", "--no-merges", "--format=%h %s")
	cmd.Dir = root(t)
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.Is(err, exec.ErrNotFound) || errors.As(err, &exit) {
			t.Skipf("no git history: %v", err)
		}
		t.Fatal(err)
	}
	for row := range strings.Lines(string(out)) {
		hash, line, _ := strings.Cut(strings.TrimSpace(row), " ")
		if why := checkSubject(line); why != "" {
			t.Errorf("commit %s %q: %s", hash, line, why)
		}
	}
}
