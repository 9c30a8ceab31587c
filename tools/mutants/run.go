package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"leasehold.dev/tools/mutants/mutant"
)

// A Witness is a set of tests that should detect a mutant.
type Witness struct {
	Dir string
	// Args holds arguments for the test binary. Without Args, each test is explored, and a mutant
	// runs only the tests that reach it.
	Args []string
	// Tests selects the tests to explore if there are no Args; nil means all.
	Tests *regexp.Regexp
}

// A bench is a witness's binary with the results of its tests without mutants.
type bench struct {
	Witness
	binary string
	tests  []test
}

// A test is a single test, or all tests of a witness that has arguments.
type test struct {
	name    string
	took    time.Duration
	reaches map[int]bool
}

// most limits the memory of a test, in KiB, because a mutant might exhaust all memory.
const most = 6 << 20

// compile builds a witness's binary, which includes all mutants.
func compile(w Witness, overlay, dir string) (*bench, error) {
	binary := filepath.Join(dir, strings.ReplaceAll(w.Dir, "/", "_")+".test")
	cmd := exec.Command("go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", binary, "./"+w.Dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compile %s with the mutants: %w\n%s", w.Dir, err, out)
	}
	return &bench{Witness: w, binary: binary}, nil
}

// explore runs the tests without a mutant, several of them in parallel. They must pass.
func (b *bench) explore(ctx context.Context, dir string, procs int) error {
	names := []string{""}
	if len(b.Args) == 0 {
		out, err := b.command(ctx, "-test.list", "^(Test|Fuzz|Example)").Output()
		if err != nil {
			return fmt.Errorf("list the tests of %s: %w", b.Dir, err)
		}
		names = slices.DeleteFunc(strings.Fields(string(out)), func(name string) bool {
			return b.Tests != nil && !b.Tests.MatchString(name)
		})
	}
	b.tests = make([]test, len(names))
	errs := make([]error, len(names))
	next := make(chan int)
	var wg sync.WaitGroup
	for range procs {
		wg.Go(func() {
			for i := range next {
				b.tests[i], errs[i] = b.visit(ctx, names[i], filepath.Join(dir, fmt.Sprint("reached", i)))
			}
		})
	}
	for i := range names {
		next <- i
	}
	close(next)
	wg.Wait()
	return errors.Join(errs...)
}

// visit runs a test without a mutant and records which mutants it reaches.
func (b *bench) visit(ctx context.Context, name, reached string) (test, error) {
	cmd := b.command(ctx, b.args([]string{name})...)
	cmd.Env = append(os.Environ(), mutant.Reached+"="+reached)
	began := time.Now()
	if out, err := cmd.CombinedOutput(); err != nil {
		return test{}, fmt.Errorf("%s %s fails without a mutant: %w\n%s", b.Dir, name, err, out)
	}
	took := time.Since(began)
	reaches, err := readReached(reached)
	return test{name: name, took: took, reaches: reaches}, err
}

// args returns the arguments for running the named tests.
func (b *bench) args(names []string) []string {
	if len(b.Args) > 0 {
		return b.Args
	}
	for i, n := range names {
		names[i] = regexp.QuoteMeta(n)
	}
	run := "^(" + strings.Join(names, "|") + ")$"
	return []string{"-test.short", "-test.failfast", "-test.run", run}
}

// command returns a command that runs the binary in its package's directory.
func (b *bench) command(ctx context.Context, args ...string) *exec.Cmd {
	limited := fmt.Sprintf(`ulimit -v %d; exec "$0" "$@"`, most)
	cmd := exec.CommandContext(ctx, "sh", append([]string{"-c", limited, b.binary}, args...)...)
	cmd.Dir = b.Dir
	cmd.WaitDelay = time.Second
	return cmd
}

// readReached reads the numbers of the mutants that a test reached and removes the file.
func readReached(path string) (map[int]bool, error) {
	reached := make(map[int]bool)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return reached, nil
	}
	if err != nil {
		return nil, err
	}
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		n, err := strconv.Atoi(s.Text())
		if err != nil {
			return nil, fmt.Errorf("mutants reached: %w", err)
		}
		reached[n] = true
	}
	return reached, os.Remove(path)
}

// A Fate is the outcome of a mutant.
type Fate int

const (
	Unreached Fate = iota // no test reaches the mutant
	Lived                 // the mutant is reached, but no test fails
	Died                  // a test fails
	Hung                  // the tests take more than five times as long
)

// String returns the fate's name.
func (f Fate) String() string {
	return [...]string{"unreached", "lived", "died", "hung"}[f]
}

// try runs the witness with mutant n. It starts with the quick tests, because they kill most
// mutants, and because a mutant that makes every test hang is then detected early.
func (b *bench) try(ctx context.Context, n int) Fate {
	fate := Unreached
	for _, tests := range b.quickFirst(n) {
		if fate = max(fate, b.run(ctx, n, tests)); fate > Lived {
			break
		}
	}
	return fate
}

// quickFirst returns the tests that reach mutant n, quickest first, in three groups. The first
// takes up to a fiftieth of the total time, the second up to a fifth, and the third is the rest.
func (b *bench) quickFirst(n int) [][]test {
	var tests []test
	var all, took time.Duration
	for _, t := range b.tests {
		if t.reaches[n] {
			tests = append(tests, t)
			all += t.took
		}
	}
	slices.SortStableFunc(tests, func(a, b test) int { return cmp.Compare(a.took, b.took) })
	parts := make([][]test, 3)
	for _, t := range tests {
		part := 0
		switch took += t.took; {
		case took > all/5:
			part = 2
		case took > all/50:
			part = 1
		}
		parts[part] = append(parts[part], t)
	}
	return parts
}

// run runs the given tests with mutant n.
func (b *bench) run(ctx context.Context, n int, tests []test) Fate {
	if len(tests) == 0 {
		return Unreached
	}
	var names []string
	var took time.Duration
	for _, t := range tests {
		names = append(names, t.name)
		took += t.took
	}
	ctx, cancel := context.WithTimeout(ctx, 5*took+5*time.Second)
	defer cancel()
	// The directory is removed together with anything that a killed test leaves in it. Its name is
	// short because tests put sockets in it, and the length of a socket's path is limited.
	temp, err := os.MkdirTemp("", "m")
	if err != nil {
		return Lived // no test has detected the mutant
	}
	defer os.RemoveAll(temp)
	cmd := b.command(ctx, b.args(names)...)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", mutant.Active, n), "TMPDIR="+temp)
	switch err := cmd.Run(); {
	case err == nil:
		return Lived
	case ctx.Err() != nil:
		return Hung
	}
	return Died
}
