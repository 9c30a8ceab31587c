package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestVerdict judges small logs, one for each way a run can go.
func TestVerdict(t *testing.T) {
	const list = `
# for people
common TestA it has no such thing
common TestB/Peers one member only
e2e TestC another suite
`
	ex, err := readExclusions(strings.NewReader(list), "common")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, log string
		ok        bool
		last      string
	}{
		{"nothing ran", "PASS\n", false, "0 passed, 0 skipped, 0 excluded, 0 failed"},
		{
			"passes", "=== RUN   TestX\n--- PASS: TestX (0.10s)\n", true,
			"1 passed, 0 skipped, 0 excluded, 0 failed",
		},
		{
			"fails", "--- PASS: TestY (0.00s)\n=== RUN   TestX\n--- FAIL: TestX (0.10s)\n", false,
			"1 passed, 0 skipped, 0 excluded, 1 failed",
		},
		{
			"end in the middle of a line", "=== RUN   TestX\nnoise--- PASS: TestX (0.10s)\n", true,
			"1 passed, 0 skipped, 0 excluded, 0 failed",
		},
		{
			"never ends", "--- PASS: TestY (0.00s)\n=== RUN   TestX\npanic: timed out\n", false,
			"1 passed, 0 skipped, 0 excluded, 1 failed",
		},
		{
			"excluded", "--- PASS: TestY (0.00s)\n--- FAIL: TestA (0.1s)\n" +
				"    --- FAIL: TestA/x (0.1s)\n", true,
			"1 passed, 0 skipped, 1 excluded, 0 failed",
		},
		{
			"excluded subtest", "--- PASS: TestY (0.00s)\n--- FAIL: TestB (0.1s)\n" +
				"    --- FAIL: TestB/Peers (0.1s)\n    --- PASS: TestB/One (0.1s)\n", true,
			"1 passed, 0 skipped, 1 excluded, 0 failed",
		},
		{
			"other subtest", "--- PASS: TestY (0.00s)\n--- FAIL: TestB (0.1s)\n" +
				"    --- FAIL: TestB/Peers (0.1s)\n    --- FAIL: TestB/One (0.1s)\n", false,
			"1 passed, 0 skipped, 0 excluded, 1 failed",
		},
		{
			"excluded elsewhere", "--- PASS: TestY (0.00s)\n--- FAIL: TestC (0.1s)\n", false,
			"1 passed, 0 skipped, 0 excluded, 1 failed",
		},
		{"all skipped", "--- SKIP: TestY (0.00s)\n", false, "0 passed, 1 skipped"},
	} {
		l, err := readLog(strings.NewReader(c.log))
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		ok := l.judge(ex).write(&out, "common")
		if ok != c.ok || !strings.Contains(out.String(), c.last) {
			t.Errorf("%s: ok is %v, want %v\n%s", c.name, ok, c.ok, out.String())
		}
	}
}

// TestPattern checks that the pattern matches exactly the named tests, and not tests with longer
// names.
func TestPattern(t *testing.T) {
	const want = `^TestA$|^TestB$/^x\.y$`
	if got := pattern([]string{"TestB/x.y", "TestA"}); got != want {
		t.Errorf("pattern %s, want %s", got, want)
	}
	if got := pattern(nil); got != "" {
		t.Errorf("no tests give the pattern %q", got)
	}
}

// TestRetryable checks that a small number of failed tests are retried, and that a retry's outcome
// replaces the first one.
func TestRetryable(t *testing.T) {
	failed := func(name string) string {
		return "=== RUN   " + name + "\n--- FAIL: " + name + " (5.0s)\n"
	}
	passed := func(name string) string {
		return "=== RUN   " + name + "\n--- PASS: " + name + " (5.0s)\n"
	}
	for _, c := range []struct {
		log  string
		want []string
	}{
		{passed("TestA"), nil},
		{passed("TestA") + failed("TestB") + failed("TestX"), []string{"TestB"}},
		{failed("TestA") + passed("TestB") + passed("TestA"), nil},
		{failed("TestA") + failed("TestB") + failed("TestC"), []string{"TestA", "TestB", "TestC"}},
		{failed("TestA") + failed("TestB") + failed("TestC") + failed("TestD"), nil},
		{failed("TestA") + "=== RUN   TestEndless\n", nil},
	} {
		l, err := readLog(strings.NewReader(c.log))
		if err != nil {
			t.Fatal(err)
		}
		if got := l.retryable(exclusions{"TestX": "excluded"}); !slices.Equal(got, c.want) {
			t.Errorf("got %q, want %q, for the log\n%s", got, c.want, c.log)
		}
	}
}

// TestReasons checks that every row of the real list has a suite and a reason.
func TestReasons(t *testing.T) {
	f, err := os.Open("../exclusions.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := readExclusions(f, "common"); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"common TestA", "common", "common TestA  "} {
		if _, err := readExclusions(strings.NewReader(bad), "common"); err == nil {
			t.Errorf("%q needs no reason", bad)
		}
	}
	text, err := os.ReadFile("../exclusions.txt")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile(`^(#.*|(common|e2e|gateway) \S+ .+)?$`)
	for line := range strings.Lines(string(text)) {
		if !row.MatchString(strings.TrimRight(line, "\n")) {
			t.Errorf("not a row: %q", line)
		}
	}
}
