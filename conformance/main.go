package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"leasehold.dev/test/process"
)

// settings holds the values of the flags.
type settings struct {
	drivers map[string][]string // commands, keyed by language
	cases   string
	match   string
	fast    bool
	binary  string
	table   string
	verbose bool
	retries int
	mixed   time.Duration
	seed    uint64
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

// command runs the suite according to the flags and returns an error if anything failed.
func command(ctx context.Context) error {
	s := settings{drivers: map[string][]string{}}
	flag.Func("driver", "driver to run: `LANGUAGE=COMMAND` (default: go)", func(text string) error {
		language, cmd, ok := strings.Cut(text, "=")
		if !ok {
			return fmt.Errorf("%q does not specify a command", text)
		}
		s.drivers[language] = strings.Fields(cmd)
		return nil
	})
	flag.StringVar(&s.cases, "cases", "conformance/cases", "`directory` that contains the cases")
	flag.StringVar(&s.match, "run", "", "only the cases that match this `expression`")
	flag.BoolVar(&s.fast, "fast", false, "only the fast cases")
	flag.StringVar(&s.binary, "server", "", "`binary` to test (default: build it)")
	flag.StringVar(&s.table, "table", "", "write the table of cases and languages to this `file`")
	flag.BoolVar(&s.verbose, "v", false, "print each case that passes")
	flag.IntVar(&s.retries, "retries", 0, "`times` to retry a failed case; it is FLAKY if it passes")
	flag.DurationVar(&s.mixed, "mixed", 0,
		"run no cases; make all languages compete for locks for this `time`")
	flag.Uint64Var(&s.seed, "seed", 1, "random seed for the faults that -mixed injects")
	flag.Parse()
	dir, err := os.MkdirTemp("", "leasehold-conformance-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := s.build(ctx, dir); err != nil {
		return err
	}
	if s.mixed > 0 {
		return runMixed(ctx, &s, dir)
	}
	return runCases(ctx, &s, dir)
}

// build builds the binaries that were not specified.
func (s *settings) build(ctx context.Context, dir string) (err error) {
	if s.binary == "" {
		if s.binary, err = process.Build(ctx, dir); err != nil {
			return err
		}
	}
	if s.drivers["go"] != nil {
		return nil
	}
	path := filepath.Join(dir, "driver")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, "./conformance/drivers/go")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("build the driver: %w\n%s", err, out)
	}
	s.drivers["go"] = []string{path}
	return nil
}

// runCases runs the cases, in each language.
func runCases(ctx context.Context, s *settings, dir string) error {
	match, err := regexp.Compile(s.match)
	if err != nil {
		return err
	}
	cases, err := loadCases(s.cases, match)
	if err != nil {
		return err
	}
	if s.fast {
		cases = slices.DeleteFunc(cases, func(c *testCase) bool { return !c.Fast })
	}
	t := newTable(cases)
	for _, language := range slices.Sorted(maps.Keys(s.drivers)) {
		u := &suite{settings: s, language: language, dir: dir, table: t}
		u.play(ctx, cases)
		u.close()
	}
	if s.table != "" {
		if err := os.WriteFile(s.table, []byte(t.markdown()), 0o644); err != nil {
			return err
		}
	}
	return t.result()
}
