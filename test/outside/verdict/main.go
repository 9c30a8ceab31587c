// Verdict reads the output of a verbose Go test binary and checks it against a list of tests that
// may fail:
//
//	verdict -suite common -exclusions exclusions.txt < log
//
// It prints the failed tests and a summary line. It exits with 1 if a test that is not on the list
// failed, if a test never ended, or if no test ran. With -skip it instead prints the -test.skip
// pattern for the excluded tests, and with -failed the names of the tests to retry.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
)

func main() {
	suite := flag.String("suite", "", "`name` of the suite, the first word of exclusions")
	list := flag.String("exclusions", "", "`file` of tests that may fail, with reasons")
	skip := flag.Bool("skip", false, "print a -test.skip pattern and stop")
	failed := flag.Bool("failed", false, "print the names of the tests to retry, one a line, and stop")
	flag.Parse()
	ok, err := run(*suite, *list, *skip, *failed)
	if err != nil {
		fmt.Fprintln(os.Stderr, "verdict:", err)
	}
	if !ok || err != nil {
		os.Exit(1)
	}
}

func run(suite, list string, skip, failed bool) (ok bool, err error) {
	f, err := os.Open(list)
	if err != nil {
		return false, err
	}
	defer f.Close()
	ex, err := readExclusions(f, suite)
	if err != nil {
		return false, fmt.Errorf("%s: %w", list, err)
	}
	if skip {
		fmt.Println(pattern(slices.Collect(maps.Keys(ex))))
		return true, nil
	}
	r, err := readLog(os.Stdin)
	if err != nil {
		return false, err
	}
	if failed {
		for _, name := range r.retryable(ex) {
			fmt.Println(name)
		}
		return true, nil
	}
	out := bufio.NewWriter(os.Stdout)
	ok = r.judge(ex).write(out, suite)
	return ok, out.Flush()
}

// write prints the verdict and reports whether the suite passes.
func (v verdict) write(w io.Writer, suite string) bool {
	for _, line := range v.lines {
		fmt.Fprintln(w, line)
	}
	word := "PASS"
	if !v.ok() {
		word = "FAIL"
	}
	fmt.Fprintf(w, "%s: outside suite %s: %d passed, %d skipped, %d excluded, %d failed\n",
		word, suite, v.passed, v.skipped, v.excluded, v.failed)
	return v.ok()
}
