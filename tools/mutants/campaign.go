package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// witnesses lists the packages to mutate. Each is listed with the tests in other packages that
// should detect its mutants.
var witnesses = map[string][]Witness{
	"lease":                    {simulator},
	"internal/holder":          {simulator},
	"internal/copies":          {simulator, {Dir: "client/cache"}},
	"internal/directory":       {simulator, {Dir: "internal/replica"}},
	"internal/fsm":             {simulator, {Dir: "internal/replica"}},
	"internal/replica":         {simulator},
	"internal/replica/silence": {{Dir: "internal/replica"}},
	"internal/api/waitqueue":   {simulator},
	"internal/ticket":          {simulator},
	"internal/watch":           {simulator},
	"internal/mvcc":            {simulator, {Dir: "internal/fsm"}},
	"internal/wheel":           {simulator, {Dir: "lease"}},
	"internal/storage":         {{Dir: "server"}},
	"internal/shell":           {simulator, {Dir: "server"}},
	"internal/access":          {},
	"internal/encoding":        {},
	"internal/keyrange":        {},
	"plan":                     {},
	"server":                   {},
	"client/cache":             {},
	"client/lock":              {},
	"client/queue":             {},
	"client/contrib/pool":      {},
	"client/members":           {},
	"client/contrib/nodes":     {},
}

// finished lists the packages that have been reviewed. At least 97% of their mutants must die or be
// listed in known.txt, regardless of -least.
var finished = []string{
	"client/cache", "client/lock", "client/members", "client/contrib/nodes", "client/contrib/pool",
	"client/queue",
	"internal/access", "internal/api/waitqueue", "internal/copies", "internal/directory",
	"internal/encoding", "internal/fsm", "internal/holder", "internal/keyrange",
	"internal/mvcc", "internal/replica", "internal/replica/silence", "internal/shell",
	"internal/ticket", "internal/watch", "internal/wheel", "lease", "plan",
}

// all lists the packages to mutate.
func all() []string { return slices.Sorted(maps.Keys(witnesses)) }

// simulator runs the simulator with a few seeds.
var simulator = Witness{
	Dir: "test/sim", Args: []string{"-test.run", "^TestSim$", "-seeds", "30", "-procs", "1"},
}

// A campaign tries a set of mutants.
type campaign struct {
	match       *regexp.Regexp
	part, parts int
	procs       int
	own         bool           // only the package's own tests
	tests       *regexp.Regexp // selects which of the package's own tests to run
	least       float64        // percentage that must die in packages that are not finished
	limit       time.Duration
	verbose     bool
	known       map[string]string

	began   time.Time
	benches map[string]*bench

	mu    sync.Mutex
	fates map[int]Fate   // keyed by mutant number
	by    map[int]string // the witness that detected the mutant
}

// run tries the mutants of the given packages, or of all packages if none are given.
func (c *campaign) run(ctx context.Context, dirs []string) error {
	if len(dirs) == 0 {
		dirs = all()
	}
	for i, d := range dirs {
		dirs[i] = strings.Trim(strings.TrimPrefix(d, "./"), "/")
		if _, ok := witnesses[dirs[i]]; !ok {
			return fmt.Errorf("%s is not one of %s", d, strings.Join(all(), " "))
		}
	}
	c.began = time.Now()
	code, err := Load(dirs)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	chosen := c.choose(code.Mutants)
	if err := c.prepare(ctx, code, chosen, work); err != nil {
		return err
	}
	c.tryAll(ctx, code.Mutants, chosen)
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(c.fates) == 0 && len(chosen) > 0 {
		return fmt.Errorf("-limit %v: no time left after %v of tests without mutants",
			c.limit, time.Since(c.began).Round(time.Second))
	}
	return c.report(code.Mutants, chosen)
}

// choose returns the numbers of the mutants to try. It omits equivalent ones.
func (c *campaign) choose(all []Mutant) []int {
	var chosen []int
	for i, m := range all {
		wanted := c.match.MatchString(m.Name) || c.match.MatchString(m.Pos.Filename)
		if i%c.parts == c.part && wanted && !isEqual(c.known[m.Name]) {
			chosen = append(chosen, i+1)
		}
	}
	return chosen
}

// prepare compiles the witnesses of the chosen mutants and runs them without a mutant.
func (c *campaign) prepare(
	ctx context.Context, code *Code, chosen []int, work string,
) error {
	overlay, err := code.Overlay(work)
	if err != nil {
		return err
	}
	c.benches = make(map[string]*bench)
	for _, n := range chosen {
		dir := code.Mutants[n-1].Dir()
		for _, w := range c.witnesses(dir) {
			if c.benches[w.Dir] != nil {
				continue
			}
			began := time.Now()
			b, err := compile(w, overlay, work)
			if err != nil {
				return err
			}
			if err := b.explore(ctx, work, 2*c.procs); err != nil {
				return err
			}
			c.benches[w.Dir] = b
			fmt.Fprintf(os.Stderr, "%s: %d tests, ready in %v\n", w.Dir, len(b.tests),
				time.Since(began).Round(time.Second))
		}
	}
	return nil
}

// witnesses returns the witnesses of a package, its own tests first.
func (c *campaign) witnesses(dir string) []Witness {
	own := []Witness{{Dir: dir, Tests: c.tests}}
	if c.own {
		return own
	}
	return append(own, witnesses[dir]...)
}

// tryAll tries the chosen mutants, several of them in parallel.
func (c *campaign) tryAll(ctx context.Context, all []Mutant, chosen []int) {
	c.fates, c.by = make(map[int]Fate), make(map[int]string)
	next := make(chan int)
	var wg sync.WaitGroup
	for range c.procs {
		wg.Go(func() {
			for n := range next {
				c.tryOne(ctx, all[n-1], n)
			}
		})
	}
	for _, n := range chosen {
		if ctx.Err() == nil && (c.limit == 0 || time.Since(c.began) < c.limit) {
			next <- n
		}
	}
	close(next)
	wg.Wait()
}

// tryOne runs the witnesses in order until one detects the mutant.
func (c *campaign) tryOne(ctx context.Context, m Mutant, n int) {
	fate, by := Unreached, ""
	for _, w := range c.witnesses(m.Dir()) {
		fate = max(fate, c.benches[w.Dir].try(ctx, n))
		if fate > Lived {
			by = w.Dir
			break
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fates[n], c.by[n] = fate, by
	if c.verbose {
		fmt.Printf("%-9s %s\n", fate, m.Name)
	}
}
