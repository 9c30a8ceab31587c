package compare

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"leasehold.dev/internal/load"
)

const (
	// idleTTL is the default TTL of an idle session's lease. renewals is the number of times a
	// lease is renewed per TTL.
	idleTTL  = 10 * time.Second
	renewals = 3
	// idleOpeners is the number of sessions opened concurrently.
	idleOpeners = 32
)

// idleWorkloads returns the workloads of clients that only keep a lease alive.
func idleWorkloads() []Workload {
	return []Workload{{
		Name: "sessions", Sheet: true, Once: true, Profiled: true, run: runIdle,
		Doc: "idle clients (-sessions, -tls), a connection and a lease each; own protocol",
	}, {
		Name: "sessions-many", Relays: true, Sheet: true, Once: true, Profiled: true,
		Doc: "sessions (-sessions) that share leases (-leases, -ttl), at relays (-relays) that are in " +
			"this program", run: runManySessions,
	}}
}

// idleAddress returns the address to which idle sessions connect, and the TLS configuration.
func (s *Server) idleAddress() (string, *tls.Config) {
	if s.Target.secure {
		return s.members[0].secure, anyServer
	}
	return s.members[0].endpoint, nil
}

// anyServer trusts self-signed certificates.
var anyServer = &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}

// idleConn is the connection of an idle session.
type idleConn interface {
	io.Closer
	// open grants the lease.
	open() error
	// renew requests a renewal.
	renew() error
	// follow reads until the connection ends. It calls renewed for each acknowledged renewal.
	follow(renewed func()) error
}

// idleDialer connects an idle session.
type idleDialer func(ctx context.Context, addr string, conf *tls.Config) (idleConn, error)

// runIdle measures sessions of the server's own protocol.
func runIdle(ctx context.Context, e *Env) (Result, error) {
	dial := dialEtcdIdle
	if e.Server.Target.Name == "leasehold" {
		dial = dialDirectIdle
	}
	return e.measureIdle(ctx, idleTTL, newIdleCrowd(e, dial))
}

// idleState is a server's resource usage at one point in time.
type idleState struct {
	usage               load.Usage
	heap, stack, number float64 // bytes after a collection, and number of goroutines
}

// idlers is a set of idle sessions.
type idlers interface {
	open(ctx context.Context) error
	// live keeps the sessions alive until ctx ends.
	live(ctx context.Context)
	// check returns an error if any session was lost.
	check() error
	close()
}

// measureIdle opens sessions whose leases have the given TTL, leaves them idle, and returns their
// cost to the server.
func (e *Env) measureIdle(ctx context.Context, ttl time.Duration, all idlers) (Result, error) {
	defer all.close()
	alone, err := e.cpuFor(ctx, ttl/renewals)
	if err != nil {
		return Result{}, err
	}
	before, err := e.idleState(ctx)
	if err != nil {
		return Result{}, err
	}
	beat, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	wg.Go(func() { all.live(beat) })
	defer wg.Wait()
	defer stop()
	began := time.Now()
	if err := all.open(ctx); err != nil {
		return Result{}, err
	}
	took := time.Since(began)
	opened, err := e.Server.Usage()
	if err != nil {
		return Result{}, err
	}
	if _, err := e.cpuFor(ctx, ttl/renewals); err != nil {
		return Result{}, err
	}
	idle, err := e.cpuFor(ctx, max(e.Duration, ttl))
	if err != nil {
		return Result{}, err
	}
	after, err := e.idleState(ctx)
	if err = errors.Join(err, all.check()); err != nil {
		return Result{}, err
	}
	kind := "without TLS"
	if e.Server.Target.secure {
		kind = "with TLS"
	}
	n := float64(e.IdleSessions)
	return Result{More: []Metric{
		{"sessions", n, kind},
		{"set up", n / took.Seconds(), "a second"},
		{"CPU to set one up", micros(opened.CPU-before.usage.CPU) / n, "us"},
		{"CPU of an idle one", (idle - alone) / n, "us a second"},
		{"resident memory of one", float64(after.usage.RSS-before.usage.RSS) / n, "bytes"},
		{"live heap of one", (after.heap - before.heap) / n, "bytes"},
		{"stacks of one", (after.stack - before.stack) / n, "bytes"},
		{"goroutines of one", (after.number - before.number) / n, "goroutines"},
	}}, nil
}

// cpuFor measures the server's CPU usage for a while, in microseconds per second.
func (e *Env) cpuFor(ctx context.Context, d time.Duration) (float64, error) {
	before, err := e.Server.Usage()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := sleepUntil(ctx, began.Add(d)); err != nil {
		return 0, err
	}
	after, err := e.Server.Usage()
	return micros(after.CPU-before.CPU) / time.Since(began).Seconds(), err
}

func micros(d time.Duration) float64 { return float64(d.Microseconds()) }

// idleState reads the resource usage of all members.
func (e *Env) idleState(ctx context.Context) (s idleState, err error) {
	if s.usage, err = e.Server.Usage(); err != nil {
		return s, err
	}
	for _, m := range e.Server.members {
		for _, of := range []struct {
			page, name string
			to         *float64
		}{
			{"/debug/pprof/heap?gc=1&debug=1", "# HeapAlloc = ", &s.heap},
			{"/debug/pprof/heap?debug=1", "# Stack = ", &s.stack},
			{"/debug/pprof/goroutine?debug=1", "goroutine profile: total ", &s.number},
		} {
			v, err := pageFigure(ctx, "http://"+m.endpoint+of.page, of.name)
			if err != nil {
				return s, err
			}
			*of.to += v
		}
	}
	return s, nil
}

// pageFigure returns the number that follows a name on a page.
func pageFigure(ctx context.Context, page, name string) (float64, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, page, nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	_, rest, ok := strings.Cut(string(text), name)
	if !ok {
		return 0, fmt.Errorf("bench: %s does not tell %q", page, name)
	}
	line, _, _ := strings.Cut(rest, "\n")
	word, _, _ := strings.Cut(line, " ")
	return strconv.ParseFloat(word, 64)
}

// idleCrowd is a large set of idle sessions.
type idleCrowd struct {
	env  *Env
	dial idleDialer
	ttl  time.Duration

	members []idleMember
	all     sync.WaitGroup
	lost    atomic.Int64 // connections that have ended
	closing atomic.Bool
	why     atomic.Pointer[error] // the reason for the first loss
}

type idleMember struct {
	conn    idleConn
	has     atomic.Bool  // whether the session has a lease
	renewed atomic.Int64 // number of acknowledged renewals
}

func newIdleCrowd(e *Env, dial idleDialer) *idleCrowd {
	return &idleCrowd{env: e, dial: dial, ttl: idleTTL, members: make([]idleMember, e.IdleSessions)}
}

// open opens all sessions.
func (c *idleCrowd) open(ctx context.Context) error {
	addr, conf := c.env.Server.idleAddress()
	return load.Spread(ctx, idleOpeners, len(c.members), func(ctx context.Context, _, i int) error {
		conn, err := c.dial(ctx, addr, conf)
		if err != nil {
			return err
		}
		m := &c.members[i]
		m.conn = conn
		if err := conn.open(); err != nil {
			return err
		}
		m.has.Store(true)
		c.all.Go(func() {
			err := conn.follow(func() { m.renewed.Add(1) })
			if !c.closing.Load() {
				c.lost.Add(1)
				c.why.CompareAndSwap(nil, &err)
			}
		})
		return nil
	})
}

// live renews the sessions in turn, spread evenly over time, until ctx ends.
func (c *idleCrowd) live(ctx context.Context) {
	began, each := time.Now(), float64(c.ttl/renewals)/float64(len(c.members))
	for i := 0; ; i++ {
		at := began.Add(time.Duration(float64(i) * each))
		if time.Until(at) > time.Millisecond && sleepUntil(ctx, at) != nil || ctx.Err() != nil {
			return
		}
		if m := &c.members[i%len(c.members)]; m.has.Load() {
			_ = m.conn.renew() // follow reports sessions that ended
		}
	}
}

// check implements idlers.
func (c *idleCrowd) check() error {
	if n := c.lost.Load(); n > 0 {
		return fmt.Errorf("bench: %d idle sessions have ended; the first: %w", n, *c.why.Load())
	}
	for i := range c.members {
		if m := &c.members[i]; m.renewed.Load() < 1 {
			return fmt.Errorf("bench: idle session %d was not renewed", i)
		}
	}
	return nil
}

func (c *idleCrowd) close() {
	c.closing.Store(true)
	for i := range c.members {
		if m := &c.members[i]; m.conn != nil {
			_ = m.conn.Close()
		}
	}
	c.all.Wait()
}
