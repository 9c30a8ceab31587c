// Command mutants changes the code in one small place after another, and tells which changes no
// test notices: a promise that no test keeps.
//
//	go run -C tools/mutants . lease internal/holder   # all mutants of these packages
//	go run -C tools/mutants . -part 3/90              # each 90th of all, from the fourth
//	go run -C tools/mutants . -only Advance lease     # those whose name or file matches
//	go run -C tools/mutants . -only writer.go -run Writer server   # with a few of the tests
//
// All mutants are compiled into one binary for each package of tests, and switched on one at a
// time (package mutant). A mutant is tried on the tests of its own package that reach it, and,
// if it lives, on the other witnesses of its package. It is reached only where it changes what
// comes out of the expression or statement that it stands in.
//
// Those that change nothing that anybody could see, and those that are known to live, stand in
// known.txt with the reason. The exit code is 1 if too many live that do not stand there: of a
// package that was gone through (finished) more than 3%, of another more than -least allows.
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
	part := flag.String("part", "0/1", "only each nth mutant, beginning with the ith")
	only := flag.String("only", "", "only mutants whose name or file matches this regular expression")
	procs := flag.Int("procs", 2, "how many are tried at a time")
	least := flag.Float64("least", 100, "how many per cent must die, or stand in known.txt")
	limit := flag.Duration("limit", 0, "begin no more mutants so long after the start; 0: never")
	own := flag.Bool("own", false, "run only the tests of the mutant's own package")
	names := flag.String("run", "", "run only those tests of the mutant's own package whose name "+
		"matches this regular expression: more mutants live than with all")
	verbose := flag.Bool("v", false, "tell of each mutant what became of it")
	packages := flag.Bool("packages", false, "list the packages, and do nothing")
	flag.Parse()
	known, err := readKnown("known.txt")
	if err != nil {
		return err
	}
	if err := os.Chdir("../.."); err != nil { // to the module that is changed
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
