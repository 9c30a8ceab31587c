// Rerun runs go test and retries the failed tests that are marked tier.RealTime.
//
//	go run ./test/rerun [flags of go test] -- packages
//
// It prints what go test prints, but only the output of failed tests. If every failed test is
// marked, it reruns each of them on its own, up to twice. A test that then passes counts as passed,
// and a line such as "FLAKY: package.Test (1 of 2 runs failed)" is printed at the end. Rerun never
// retries a test that is not marked, a data race, a panic, or a package that does not build.
//
// It exits with 0 if everything eventually passed, and with 1 otherwise.
package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
)

func main() {
	flags, packages := split(os.Args[1:])
	if len(packages) == 0 {
		fmt.Fprintln(os.Stderr, "usage: rerun [flags of go test] -- packages")
		os.Exit(2)
	}
	if !run(os.Stdout, goTest, flags, packages) {
		os.Exit(1)
	}
}

// split separates the flags of go test from the packages after "--".
func split(args []string) (flags, packages []string) {
	if i := slices.Index(args, "--"); i >= 0 {
		return args[:i], args[i+1:]
	}
	return args, nil
}

// goTest runs go test -json with additional arguments and passes its standard output to read.
func goTest(args []string, read func(io.Reader) error) error {
	c := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	if err := read(out); err != nil {
		_ = c.Process.Kill()
		_ = c.Wait()
		return err
	}
	return c.Wait()
}
