package compare

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"runtime/debug"
	"sync"
	"time"

	"google.golang.org/grpc/test/bufconn"

	leaseholdv1 "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/host"
	"leasehold.dev/internal/listen"
	"leasehold.dev/internal/load"
	"leasehold.dev/internal/relay"
	"leasehold.dev/test/process"
)

// The workload with many sessions requires relays in this process and in-memory connections,
// because a process can only have about ten thousand open files.

const (
	// memoryRoom is the buffer size of an in-memory connection, in each direction.
	memoryRoom = 1 << 10
	// timedEvery is the interval between timed requests.
	timedEvery = 5 * time.Millisecond
	// manyMemory is the memory usage at which this process starts to collect garbage.
	manyMemory = 12 << 30
)

// manySessions is a set of sessions with relays in this process. -leases is the total number of
// their leases.
type manySessions struct {
	*idleCrowd
	relays memoryRelays

	more []Metric
}

// runManySessions measures what the sessions cost a member, and the latency through the relays.
func runManySessions(ctx context.Context, e *Env) (_ Result, err error) {
	if e.Leases < e.IdleSessions {
		return Result{}, fmt.Errorf("bench: %d leases for %d sessions", e.Leases, e.IdleSessions)
	}
	// With this many goroutines, garbage collection would delay the relays.
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(manyMemory))
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	m := newManySessions(e)
	defer func() { err = errors.Join(err, m.relays.stop()) }()
	if m.relays, err = e.startMemoryRelays(ctx); err != nil {
		return Result{}, err
	}
	r, err := e.measureIdle(ctx, e.TTL, m)
	r.More = append(r.More, m.more...)
	return r, err
}

func newManySessions(e *Env) *manySessions {
	m := &manySessions{}
	m.idleCrowd = newIdleCrowd(e, func(ctx context.Context, _ string, _ *tls.Config) (idleConn, error) {
		s, err := m.relays.dial(ctx)
		if err == nil {
			s.ttl, s.leases = e.TTL, e.Leases/e.IdleSessions
		}
		return s, err
	})
	m.ttl = e.TTL
	return m
}

// check implements idlers. While the sessions are idle, it counts the messages to the member. It
// also compares requests sent to the member with requests through a relay.
func (m *manySessions) check() error {
	ctx := context.Background()
	before, err := m.env.relayMessages(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	cpu, err := m.env.cpuFor(ctx, max(m.env.Duration, m.ttl/renewals))
	if err != nil {
		return err
	}
	after, err := m.env.relayMessages(ctx)
	if err != nil {
		return err
	}
	m.more = append(m.more, Metric{"CPU of the member", cpu / 1e4, "% of a core"},
		Metric{"messages to the member", (after - before) / time.Since(began).Seconds(), "a second"})
	if err := m.compareWays(ctx); err != nil {
		return err
	}
	return m.idleCrowd.check()
}

// compareWays alternately times requests to the member and requests through a relay.
func (m *manySessions) compareWays(ctx context.Context) error {
	ways := []*timed{
		{name: "to the member", addr: m.env.Server.members[0].endpoint},
		{name: "through a relay", addr: m.relays[0].addr},
	}
	for _, w := range ways {
		if err := w.open(ctx, m.ttl); err != nil {
			return err
		}
		defer w.Close()
	}
	for end := time.Now().Add(m.env.Duration); time.Now().Before(end); {
		for _, w := range ways {
			err := errors.Join(w.measure(), sleepUntil(ctx, time.Now().Add(timedEvery)))
			if err != nil {
				return err
			}
		}
	}
	for _, w := range ways {
		m.more = append(m.more, w.metrics()...)
	}
	return nil
}

// relayMessages returns the number of messages that the member has received from relays.
func (e *Env) relayMessages(ctx context.Context) (float64, error) {
	return pageFigure(ctx, "http://"+e.Server.members[0].endpoint+"/metrics",
		`grpc_server_msg_received_total{grpc_method="Relay",`+
			`grpc_service="leasehold.v1.RelayService",grpc_type="bidi_stream"} `)
}

// memoryRelays is a set of relays in this process.
type memoryRelays []*memoryRelay

// startMemoryRelays starts the number of relays set by -relays.
func (e *Env) startMemoryRelays(ctx context.Context) (list memoryRelays, err error) {
	for range e.Relays {
		r, err := e.startMemoryRelay(ctx)
		if err != nil {
			return list, err
		}
		list = append(list, r)
	}
	return list, nil
}

// dial connects a session to a random relay.
func (l memoryRelays) dial(ctx context.Context) (*ownSession, error) {
	c, err := l[rand.IntN(len(l))].memory.DialContext(ctx)
	if err != nil {
		return nil, err
	}
	return newOwnSession(&directStream{Conn: c}), nil
}

// stop stops all relays concurrently, so that none of their sessions has to wait.
func (l memoryRelays) stop() error {
	errs := make([]error, len(l))
	var all sync.WaitGroup
	for i, r := range l {
		all.Go(func() { errs[i] = r.stop() })
	}
	all.Wait()
	return errors.Join(errs...)
}

// memoryRelay is a relay in this process.
type memoryRelay struct {
	memory *bufconn.Listener
	addr   string // TCP address of the same relay
	stop   func() error
}

// startMemoryRelay starts a relay in front of the first member.
func (e *Env) startMemoryRelay(ctx context.Context) (*memoryRelay, error) {
	m := &memoryRelay{memory: bufconn.Listen(memoryRoom), addr: process.MustFreeAddr()}
	memory := url.URL{Scheme: "http", Host: "memory:1"}
	var dialer net.Dialer
	r, err := relay.New(relay.Config{
		Endpoints: []string{e.Server.members[0].endpoint},
		Listen:    []url.URL{memory, {Scheme: "http", Host: m.addr}},
		Host: &host.Host{
			Dial: dialer.DialContext,
			Listen: func(ctx context.Context, u url.URL) (net.Listener, error) {
				if u == memory {
					return m.memory, nil
				}
				return listen.Listen(ctx, u)
			},
		},
	})
	if err != nil {
		return nil, err
	}
	run, cancel := context.WithCancel(ctx)
	var ended error
	var running sync.WaitGroup
	running.Go(func() { ended = r.Run(run) })
	m.stop = func() error {
		cancel()
		running.Wait()
		return ended
	}
	select {
	case <-r.Ready():
		return m, nil
	case <-ctx.Done():
		return nil, errors.Join(context.Cause(ctx), m.stop())
	}
}

// timed is a session whose requests are measured.
type timed struct {
	name, addr string
	*ownSession
	puts, renewals load.Histogram
}

func (t *timed) open(ctx context.Context, ttl time.Duration) error {
	c, err := dialRaw(ctx, t.addr, nil)
	if err != nil {
		return err
	}
	t.ownSession = newOwnSession(&directStream{Conn: c})
	t.ttl = ttl
	return t.ownSession.open()
}

// measure sends a put and then a renewal. The relay does not hold this renewal back for a round,
// because the put could have changed the TTL.
func (t *timed) measure() error {
	err := t.time(&t.puts, &leaseholdv1.Request{Body: &leaseholdv1.Request_Put{
		Put: &leaseholdv1.PutRequest{Key: []byte(t.name), Value: make([]byte, load.ValueSize)},
	}})
	return errors.Join(err, t.time(&t.renewals, t.renewal()))
}

// time measures the duration of a request.
func (t *timed) time(h *load.Histogram, r *leaseholdv1.Request) error {
	began := time.Now()
	if err := t.ask(r); err != nil {
		return err
	}
	h.Add(time.Since(began))
	return nil
}

func (t *timed) metrics() (list []Metric) {
	for _, of := range []struct {
		name string
		h    *load.Histogram
	}{{"put", &t.puts}, {"renewal", &t.renewals}} {
		list = append(list,
			Metric{of.name + " " + t.name + ", p50", load.Millis(of.h.Quantile(0.5)), "ms"},
			Metric{of.name + " " + t.name + ", p99", load.Millis(of.h.Quantile(0.99)), "ms"})
	}
	return list
}
