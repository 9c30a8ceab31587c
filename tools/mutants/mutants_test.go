package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden file")

const sample = "sample"

// fates tries all mutants of the sample and returns one line per outcome.
func fates(t *testing.T) []string {
	t.Helper()
	t.Chdir("testdata")
	c := campaign{match: regexp.MustCompile(""), parts: 1, procs: 2}
	code, err := Load([]string{sample})
	if err != nil {
		t.Fatal(err)
	}
	chosen := c.choose(code.Mutants)
	if err := c.prepare(t.Context(), code, chosen, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	c.tryAll(t.Context(), code.Mutants, chosen)
	var lines []string
	for _, n := range chosen {
		m := code.Mutants[n-1]
		lines = append(lines, fmt.Sprintf("%-9s %s", c.fates[n], strings.TrimPrefix(m.Name, sample+": ")))
	}
	return lines
}

// TestSample checks that every mutant of a small package dies, except those not covered by its
// tests. The expected outcomes are in a golden file.
func TestSample(t *testing.T) {
	golden, err := filepath.Abs("testdata/sample.golden")
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(fates(t), "\n") + "\n"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// TestJudge checks how many mutants may survive: 3% in a finished package, the allowed share in any
// other, and more in a small sample. Three standard deviations are added, so the limits are 3+5.1
// of 100, 20+12 of 100, and 2+3.79 of 10.
func TestJudge(t *testing.T) {
	for _, x := range []struct {
		dir          string
		lived, tried int
		fails        bool
	}{
		{finished[0], 8, 100, false},
		{finished[0], 9, 100, true},
		{"server", 32, 100, false},
		{"server", 33, 100, true},
		{"server", 5, 10, false},
		{"server", 6, 10, true},
	} {
		c := campaign{least: 80}
		err := c.judge(map[string]*row{x.dir: {tried: x.tried, lived: x.lived}})
		if (err != nil) != x.fails {
			t.Errorf("%s, of which %d of %d live: %v", x.dir, x.lived, x.tried, err)
		}
	}
	for _, dir := range finished {
		if _, ok := witnesses[dir]; !ok {
			t.Errorf("%s is listed as finished, but is not mutated", dir)
		}
	}
}

// TestKnown checks that every line of known.txt has a reason and names an existing mutant.
func TestKnown(t *testing.T) {
	path := filepath.Join(t.TempDir(), "known.txt")
	if err := os.WriteFile(path, []byte("# comment\n\na: b\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readKnown(path); err == nil {
		t.Error("a mutant without a reason is accepted")
	}
	known, err := readKnown("known.txt")
	if err != nil {
		t.Fatal(err)
	}
	if len(known) == 0 {
		return
	}
	t.Chdir("../..")
	var dirs []string
	for name := range known {
		dirs = append(dirs, Mutant{Name: name}.Dir())
	}
	slices.Sort(dirs)
	code, err := Load(slices.Compact(dirs))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range code.Mutants {
		delete(known, m.Name)
	}
	for name := range known {
		t.Errorf("known.txt names a mutant that no longer exists: %s", name)
	}
}
