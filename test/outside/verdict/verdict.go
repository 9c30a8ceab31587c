package main

import (
	"bufio"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// exclusions contains, for each test that may fail, the reason. A test's name also covers its
// subtests.
type exclusions map[string]string

// readExclusions reads lines of the form "suite test reason" and keeps those for one suite. It
// ignores empty lines and lines that begin with #.
func readExclusions(r io.Reader, suite string) (exclusions, error) {
	ex := exclusions{}
	in := bufio.NewScanner(r)
	for n := 1; in.Scan(); n++ {
		line := strings.TrimSpace(in.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		f := strings.SplitN(line, " ", 3)
		if len(f) < 3 || strings.TrimSpace(f[2]) == "" {
			return nil, fmt.Errorf("line %d: want \"suite test reason\", got %q", n, line)
		}
		if f[0] == suite {
			ex[f[1]] = strings.TrimSpace(f[2])
		}
	}
	return ex, in.Err()
}

// covers returns the reason listed for a test or one of its parents.
func (ex exclusions) covers(name string) (string, bool) {
	for {
		if why, ok := ex[name]; ok {
			return why, true
		}
		i := strings.LastIndexByte(name, '/')
		if i < 0 {
			return "", false
		}
		name = name[:i]
	}
}

// pattern returns a pattern for -test.run and -test.skip that matches exactly the named tests. Each
// element of a name is matched separately.
func pattern(names []string) string {
	var alternatives []string
	for _, name := range names {
		elements := strings.Split(name, "/")
		for i, e := range elements {
			elements[i] = "^" + regexp.QuoteMeta(e) + "$"
		}
		alternatives = append(alternatives, strings.Join(elements, "/"))
	}
	slices.Sort(alternatives)
	return strings.Join(alternatives, "|")
}

// An outcome is the result of a test. Its word is "" if the test started but never ended.
type outcome struct {
	word    string // PASS, FAIL, SKIP
	seconds string
}

// A runLog holds the outcomes of one run, in the order in which the tests started.
type runLog struct {
	order []string
	by    map[string]outcome
}

var (
	began = regexp.MustCompile(`^=== RUN +(\S+)`)
	// Some tests print without a newline, so the result of a test can appear in the middle of a
	// line.
	ended = regexp.MustCompile(`--- (PASS|FAIL|SKIP): (\S+) \(([0-9.]+)s\)`)
)

// maxRetried limits how many failed tests of a suite are retried. If more fail, none are retried.
//
// The suites run real processes and have their own timeouts. In addition, etcd's harness reads
// programs' output through pseudo-terminals. If a program prints its last lines and exits between
// two reads, Linux returns EIO and drops the lines. This happens once in tens of thousands of
// programs.
const maxRetried = 3

func readLog(r io.Reader) (runLog, error) {
	l := runLog{by: map[string]outcome{}}
	note := func(name string, o outcome) {
		if _, ok := l.by[name]; !ok {
			l.order = append(l.order, name)
		}
		l.by[name] = o
	}
	in := bufio.NewScanner(r)
	in.Buffer(nil, 64<<20) // servers can log long lines
	for in.Scan() {
		if m := began.FindStringSubmatch(in.Text()); m != nil {
			note(m[1], outcome{})
		} else if m := ended.FindStringSubmatch(in.Text()); m != nil {
			note(m[2], outcome{m[1], m[3]})
		}
	}
	return l, in.Err()
}

// A verdict is the result of a run. Its lines describe only noteworthy tests; tests that simply
// passed were printed when they ran.
type verdict struct {
	lines                             []string
	passed, skipped, excluded, failed int
}

// ok reports whether at least one test passed and none failed.
func (v verdict) ok() bool { return v.failed == 0 && v.passed > 0 }

// judge checks every top-level test against the exclusions.
func (l runLog) judge(ex exclusions) verdict {
	var v verdict
	for _, name := range l.order {
		if strings.Contains(name, "/") {
			continue
		}
		o := l.by[name]
		say := func(word, tail string) {
			v.lines = append(v.lines, fmt.Sprintf("%-8s %s (%ss)%s", word, name, o.seconds, tail))
		}
		guilty := l.guilty(name, ex)
		switch {
		case o.word == "PASS":
			v.passed++
			if _, ok := ex.covers(name); ok {
				say("PASS", ", although it is on the list of exclusions")
			}
		case o.word == "SKIP":
			v.skipped++
		case len(guilty) == 0:
			v.excluded++
			say("EXCLUDED", "")
		default:
			v.failed++
			say("FAIL", "")
			for _, g := range guilty {
				v.lines = append(v.lines, "         "+g)
			}
		}
	}
	return v
}

// guilty lists the parts of a top-level test that failed and are not excluded. A test also fails if
// a subtest fails, so it is listed only if none of its subtests failed.
func (l runLog) guilty(top string, ex exclusions) []string {
	var out []string
	for _, name := range l.order {
		o := l.by[name]
		if name != top && !strings.HasPrefix(name, top+"/") || o.word == "PASS" || o.word == "SKIP" {
			continue
		}
		if _, ok := ex.covers(name); ok || l.failedBelow(name) {
			continue
		}
		if o.word == "" {
			name += " (did not end)"
		}
		out = append(out, name)
	}
	return out
}

// retryable returns the failed tests, or none if there are too many or one of them never ended.
func (l runLog) retryable(ex exclusions) []string {
	var out []string
	for _, name := range l.order {
		if strings.Contains(name, "/") || len(l.guilty(name, ex)) == 0 {
			continue
		}
		if out = append(out, name); l.by[name].word == "" || len(out) > maxRetried {
			return nil
		}
	}
	return out
}

func (l runLog) failedBelow(name string) bool {
	for _, n := range l.order {
		w := l.by[n].word
		if strings.HasPrefix(n, name+"/") && w != "PASS" && w != "SKIP" {
			return true
		}
	}
	return false
}
