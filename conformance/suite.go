package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

// suite runs cases in one language. It reuses clusters and drivers between cases.
type suite struct {
	*settings
	language string
	dir      string
	table    *table
	clusters map[string]*cluster
	drivers  map[string]*driver // keyed by client name
	n        int
}

func (u *suite) play(ctx context.Context, cases []*testCase) {
	u.clusters, u.drivers = map[string]*cluster{}, map[string]*driver{}
	for _, c := range cases {
		if ctx.Err() != nil {
			return
		}
		if why := c.Without[u.language]; why != "" {
			u.table.add(c.Name, u.language, outcome{without: why})
			continue
		}
		u.table.add(c.Name, u.language, u.tries(ctx, c))
	}
}

// tries runs a case. If the case fails, it is retried as often as the flags allow.
func (u *suite) tries(ctx context.Context, c *testCase) outcome {
	for n := 0; ; n++ {
		began := time.Now()
		err := u.one(ctx, c)
		took := time.Since(began)
		switch {
		case err != nil:
			fmt.Printf("FAIL %s %s (%.1fs): %v\n", u.language, c.Name, took.Seconds(), err)
		case n > 0:
			fmt.Printf("FLAKY: %s %s (%d of %d runs failed)\n", u.language, c.Name, n, n+1)
		case u.verbose:
			fmt.Printf("ok   %s %s (%.1fs)\n", u.language, c.Name, took.Seconds())
		}
		if err == nil || n == u.retries || ctx.Err() != nil {
			return outcome{err: err, took: took}
		}
	}
}

// one runs a single case.
func (u *suite) one(ctx context.Context, c *testCase) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	u.n++
	cl, err := u.cluster(ctx, c)
	if err != nil {
		return err
	}
	r := &run{
		testCase: c, ctx: ctx, cluster: cl, clients: map[string]*client{},
		vars: variables{
			"ns": fmt.Sprintf("app/%s%d", u.language, u.n), "large": strings.Repeat("x", 100_000),
		},
		later: map[string]<-chan *answer{},
	}
	for name := range c.Clients {
		d, err := u.driver(name)
		if err != nil {
			return err
		}
		r.clients[name] = &client{driver: d, proxies: map[*member]*proxy{}}
	}
	err = r.play()
	u.cleanUp(r, cl)
	return err
}

// cleanUp removes everything left behind by a case.
func (u *suite) cleanUp(r *run, cl *cluster) {
	for name, c := range r.clients {
		if c.stopped {
			_ = c.signal(syscall.SIGCONT)
		}
		for _, p := range c.proxies {
			p.set(func() { p.cut, p.ways = false, [2]way{} })
		}
		if !c.reset() {
			c.kill()
			delete(u.drivers, name)
		}
		for _, p := range c.proxies {
			p.close()
		}
	}
	if r.Given.Own {
		cl.stop()
	}
}

// reset makes a driver close everything, and reports whether it did so.
func (c *client) reset() bool {
	answer, err := c.send("reset", nil)
	if err != nil {
		return false
	}
	select {
	case a := <-answer:
		return a.Error == nil
	case <-time.After(20 * time.Second):
		return false
	}
}

func (u *suite) cluster(ctx context.Context, c *testCase) (*cluster, error) {
	key := fmt.Sprintf("%+v", c.Given)
	if found := u.clusters[key]; found != nil && !c.Given.Own {
		return found, nil
	}
	dir, err := os.MkdirTemp(u.dir, "cluster-")
	if err != nil {
		return nil, err
	}
	cl, err := startCluster(ctx, c.Given, u.binary, dir)
	if err == nil && !c.Given.Own {
		u.clusters[key] = cl
	}
	return cl, err
}

func (u *suite) driver(name string) (*driver, error) {
	if d := u.drivers[name]; d != nil {
		return d, nil
	}
	d, err := startDriver(u.settings.drivers[u.language])
	if err == nil {
		u.drivers[name] = d
	}
	return d, err
}

func (u *suite) close() {
	for _, d := range u.drivers {
		d.kill()
	}
	for _, c := range u.clusters {
		c.stop()
	}
}

// table holds the outcome of each case in each language.
type table struct {
	cases     []string
	languages []string
	cells     map[[2]string]outcome
}

type outcome struct {
	err     error
	took    time.Duration
	without string // why the case is not supported
}

func newTable(cases []*testCase) *table {
	t := &table{cells: map[[2]string]outcome{}}
	for _, c := range cases {
		t.cases = append(t.cases, c.Name)
	}
	return t
}

func (t *table) add(name, language string, o outcome) {
	if !slices.Contains(t.languages, language) {
		t.languages = append(t.languages, language)
	}
	t.cells[[2]string{name, language}] = o
}

// markdown returns the table for human readers, followed by the reasons why cases are not
// supported.
func (t *table) markdown() string {
	head, rule := "| case |", "|---|"
	for _, l := range t.languages {
		head += " " + l + " |"
		rule += "---|"
	}
	out, why := head+"\n"+rule+"\n", ""
	for _, name := range t.cases {
		out += "| " + name + " |"
		for _, l := range t.languages {
			switch o, ok := t.cells[[2]string{name, l}]; {
			case !ok:
				out += " |"
			case o.without != "":
				out += " - |"
				why += fmt.Sprintf("- %s, %s: %s.\n", name, l, o.without)
			case o.err != nil:
				out += " FAIL |"
			default:
				out += " yes |"
			}
		}
		out += "\n"
	}
	if why != "" {
		out += "\nNot supported:\n\n" + why
	}
	return out
}

// result prints the counts and returns an error if a case failed.
func (t *table) result() error {
	bad := 0
	for _, l := range t.languages {
		var passed, failed, without int
		for _, name := range t.cases {
			switch o, ok := t.cells[[2]string{name, l}]; {
			case !ok:
			case o.without != "":
				without++
			case o.err != nil:
				failed++
			default:
				passed++
			}
		}
		fmt.Printf("%s: %d passed, %d failed, %d not supported\n", l, passed, failed, without)
		bad += failed
	}
	if bad > 0 {
		return fmt.Errorf("%d failed", bad)
	}
	return nil
}
