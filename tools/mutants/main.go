// Command mutants makes small changes to the code, one at a time, and reports those that no test
// detects. Each of these shows that a promise is not tested.
//
//	go run -C tools/mutants . lease internal/holder   # all mutants of these packages
//	go run -C tools/mutants . -part 3/90              # every 90th, starting with the fourth
//	go run -C tools/mutants . -only Advance lease     # those whose name or file matches
//	go run -C tools/mutants . -only writer.go -run Writer server   # with a few of the tests
//
// Each package of tests is compiled into one binary that contains all mutants, which are activated
// one at a time (package mutant). A mutant is first tried on the tests of its own package that
// reach it. If it survives, it is tried on the package's other witnesses. It counts as reached only
// where it changes the result of the surrounding expression or statement.
//
// Mutants that change nothing observable, and known survivors, are listed in known.txt with the
// reason. The exit code is 1 if too many others survive: more than 3% for a finished package, or
// more than -least allows for any other package.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

func run() error {
	part := flag.String("part", "0/1", "only every nth mutant, starting with the ith")
	only := flag.String("only", "", "only mutants whose name or file matches this regular expression")
	procs := flag.Int("procs", 2, "number of mutants to try in parallel")
	least := flag.Float64("least", 100, "percentage that must die or be listed in known.txt")
	limit := flag.Duration("limit", 0, "start no more mutants after this time; 0 for no limit")
	own := flag.Bool("own", false, "run only the tests of the mutant's own package")
	names := flag.String("run", "", "run only those tests of the mutant's own package whose name "+
		"matches this regular expression; more mutants survive than with all tests")
	verbose := flag.Bool("v", false, "print the outcome of each mutant")
	packages := flag.Bool("packages", false, "list the packages and exit")
	flag.Parse()
	known, err := readKnown("known.txt")
	if err != nil {
		return err
	}
	if err := os.Chdir("../.."); err != nil { // the directory of the module to mutate
		return err
	}
	if *packages {
		fmt.Println(strings.Join(all(), "\n"))
		return nil
	}
	match, err := regexp.Compile(*only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	tests, err := regexp.Compile(*names)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	c := campaign{
		match: match, procs: *procs, own: *own || *names != "", tests: tests, verbose: *verbose,
		least: *least, limit: *limit,
	}
	if _, err := fmt.Sscanf(*part, "%d/%d", &c.part, &c.parts); err != nil || c.parts < 1 {
		return fmt.Errorf("-part %s: want two numbers such as 0/10", *part)
	}
	c.known = known
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return c.run(ctx, flag.Args())
}
