package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"leasehold.dev/test/tier"
)

// retries is the maximum number of times that a failed real-time test is retried.
const retries = 2

// command runs go test -json with additional arguments and passes its standard output to read.
type command func(args []string, read func(io.Reader) error) error

// test names a top-level test.
type test struct{ pkg, name string }

func (t test) String() string { return t.pkg + "." + t.name }

func compare(a, b test) int {
	return cmp.Or(cmp.Compare(a.pkg, b.pkg), cmp.Compare(a.name, b.name))
}

// run runs the tests, retries the failed ones if that is permitted, and reports whether every test
// eventually passed.
func run(w io.Writer, goTest command, flags, packages []string) bool {
	r, err := once(w, goTest, append(slices.Clone(flags), packages...))
	if err == nil && len(r.failed) == 0 && !r.broken {
		return true
	}
	if !r.retryable() {
		return false
	}
	var flaky []string
	passed := true
	for _, t := range slices.SortedFunc(maps.Keys(r.failed), compare) {
		failures, ok := retry(w, goTest, flags, t)
		passed = passed && ok
		if ok {
			flaky = append(flaky, fmt.Sprintf("FLAKY: %v (%d of %d runs failed)", t, failures, failures+1))
		}
	}
	for _, line := range flaky {
		fmt.Fprintln(w, line)
	}
	return passed
}

// retry retries a failed test on its own. It returns the total number of failures, and whether the
// test eventually passed.
func retry(w io.Writer, goTest command, flags []string, t test) (failures int, passed bool) {
	alone := append(slices.Clone(flags), "-count=1", "-run", "^"+regexp.QuoteMeta(t.name)+"$", t.pkg)
	for failures = 1; failures <= retries; failures++ {
		fmt.Fprintf(w, "\nretrying %v, which is marked %s (%d of %d)\n",
			t, tier.RealTimeValue, failures, retries)
		r, err := once(w, goTest, alone)
		if err == nil && len(r.failed) == 0 && !r.broken && r.ran[t] {
			return failures, true
		}
		if r.broken {
			break
		}
	}
	return failures, false
}

// result is the outcome of one go test command.
type result struct {
	ran    map[test]bool
	failed map[test]bool
	marked map[test]bool // tests marked real-time
	broken bool          // a package did not build or crashed, or a race was detected
}

// retryable reports whether every failed test is marked real-time.
func (r *result) retryable() bool {
	if r.broken || len(r.failed) == 0 {
		return false
	}
	for t := range r.failed {
		if !r.marked[t] {
			return false
		}
	}
	return true
}

// once runs one go test command, prints its output and returns its outcome.
func once(w io.Writer, goTest command, args []string) (*result, error) {
	p := &printer{
		w: w, output: map[test]*strings.Builder{}, failing: map[string]bool{},
		result: result{ran: map[test]bool{}, failed: map[test]bool{}, marked: map[test]bool{}},
	}
	err := goTest(args, p.read)
	if err != nil && len(p.failed) == 0 {
		p.broken = true
	}
	return &p.result, err
}

// event is an output line of go test -json; see go doc test2json.
type event struct {
	Action, Package, Test, Output, Key, Value string
}

// printer collects a result and prints output the way go test does without -v.
type printer struct {
	result
	w       io.Writer
	output  map[test]*strings.Builder // output of each top-level test until it ends
	failing map[string]bool           // packages with a failed test
}

func (p *printer) read(r io.Reader) error {
	d := json.NewDecoder(r)
	for {
		var e event
		if err := d.Decode(&e); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("reading the output of go test -json: %w", err)
		}
		if e.Test == "" {
			p.pkg(e)
		} else {
			p.test(e)
		}
	}
}

// pkg handles an event about a whole package.
func (p *printer) pkg(e event) {
	switch e.Action {
	case "output", "build-output":
		if e.Output != "PASS\n" {
			fmt.Fprint(p.w, e.Output)
		}
	case "build-fail":
		p.broken = true
	case "fail":
		if !p.failing[e.Package] {
			p.broken = true
		}
	}
}

// crash lists prefixes of output lines that show that a failure has nothing to do with timing.
var crash = []string{"WARNING: DATA RACE", "panic: ", "fatal error: "}

// test handles an event about a test or a subtest.
func (p *printer) test(e event) {
	name, _, sub := strings.Cut(e.Test, "/")
	t := test{e.Package, name}
	switch e.Action {
	case "run":
		p.ran[t] = true
	case "attr":
		if e.Key == tier.Attribute && e.Value == tier.RealTimeValue {
			p.marked[t] = true
		}
	case "output":
		if p.output[t] == nil {
			p.output[t] = &strings.Builder{}
		}
		p.output[t].WriteString(e.Output)
		for _, c := range crash {
			p.broken = p.broken || strings.HasPrefix(strings.TrimSpace(e.Output), c)
		}
	case "fail":
		p.failing[e.Package] = true
		if !sub {
			p.failed[t] = true
			p.print(t)
		}
	case "pass", "skip":
		if !sub {
			delete(p.output, t)
		}
	}
}

// print prints the output of a failed test, except lines that only -v shows.
func (p *printer) print(t test) {
	if p.output[t] == nil {
		return
	}
	for line := range strings.Lines(p.output[t].String()) {
		if !strings.HasPrefix(line, "=== ") {
			fmt.Fprint(p.w, line)
		}
	}
	delete(p.output, t)
}
