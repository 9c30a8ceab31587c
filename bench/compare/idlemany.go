package compare

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/test/bufconn"

	leaseholdv1 "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/host"
	"leasehold.dev/internal/listen"
	"leasehold.dev/internal/load"
	"leasehold.dev/internal/relay"
	"leasehold.dev/test/process"
)

// Very many sessions need relays that are in this process, and connections in its memory: a process
// may have no more than some ten thousand files.

const (
	// memoryRoom is what a connection takes of memory each way.
	memoryRoom = 1 << 10
	// timedEvery is how often the ways to the member are compared.
	timedEvery = 5 * time.Millisecond
	// manyGC is by how much the memory of this process may grow, in percent, before it is collected.
	manyGC = 800
)

// manySessions are sessions of relays in this process. Together they have the leases (-leases).
type manySessions struct {
	*idleCrowd
	relays []*memoryRelay

	more []Metric
}

// runManySessions measures what a member spends on them, and what they have of their relays.
func runManySessions(ctx context.Context, e *Env) (_ Result, err error) {
	if e.Leases < e.IdleSessions {
		return Result{}, fmt.Errorf("bench: %d leases for %d sessions", e.Leases, e.IdleSessions)
	}
	// The garbage of so many goroutines, collected by them, would keep the relays from their work.
	defer debug.SetGCPercent(debug.SetGCPercent(manyGC))
	m := &manySessions{}
	defer func() {
		for _, r := range m.relays {
			err = errors.Join(err, r.stop())
		}
	}()
	for range e.Relays {
		r, err := e.startMemoryRelay(ctx)
		if err != nil {
			return Result{}, err
		}
		m.relays = append(m.relays, r)
	}
	var turn atomic.Int64
	connect := func(ctx context.Context, _ string, _ *tls.Config) (idleConn, error) {
		c, err := m.relays[int(turn.Add(1))%len(m.relays)].memory.DialContext(ctx)
		if err != nil {
			return nil, err
		}
		s := newOwnSession(&directStream{Conn: c})
		s.ttl, s.leases = e.TTL, e.Leases/e.IdleSessions
		return s, nil
	}
	m.idleCrowd = newIdleCrowd(e, connect)
	m.ttl = e.TTL
	r, err := e.measureIdle(ctx, e.TTL, m)
	r.More = append(r.More, m.more...)
	return r, err
}

// check implements idlers: while all is as it was measured, it looks at what comes to the member,
// and compares the ways to it.
func (m *manySessions) check() error {
	ctx := context.Background()
	before, err := m.messages(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	cpu, err := m.env.cpuFor(ctx, m.ttl/renewals)
	if err != nil {
		return err
	}
	after, err := m.messages(ctx)
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

// compareWays takes the time of requests to the member, and through a relay, in turn.
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

// messages returns how many have come to the member from relays.
func (m *manySessions) messages(ctx context.Context) (float64, error) {
	return pageFigure(ctx, "http://"+m.env.Server.members[0].endpoint+"/metrics",
		`grpc_server_msg_received_total{grpc_method="Relay",`+
			`grpc_service="leasehold.v1.RelayService",grpc_type="bidi_stream"} `)
}

// memoryRelay is a relay in this process.
type memoryRelay struct {
	memory *bufconn.Listener
	addr   string // the same over TCP
	stop   func() error
}

// startMemoryRelay starts one in front of the first member.
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

// timed is a session whose requests are timed.
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

// measure makes a put and then a renewal, which no relay lets wait for others: the put could have
// changed the TTL.
func (t *timed) measure() error {
	t.number++
	put := &leaseholdv1.ClientMessage{Requests: []*leaseholdv1.Request{{
		Id: t.number, Body: &leaseholdv1.Request_Put{
			Put: &leaseholdv1.PutRequest{Key: []byte(t.name), Value: make([]byte, load.ValueSize)},
		},
	}}}
	err := t.time(&t.puts, func() error { return t.send(put) })
	return errors.Join(err, t.time(&t.renewals, t.renew))
}

var errAnswered = errors.New("answered")

// time notes how long a request takes.
func (t *timed) time(h *load.Histogram, ask func() error) error {
	began := time.Now()
	if err := ask(); err != nil {
		return err
	}
	err := t.receive(func(m *leaseholdv1.ServerMessage) error {
		for _, r := range m.Responses {
			if r.Id != t.number {
				continue
			}
			if e := r.GetError(); e != nil {
				return fmt.Errorf("bench: %v", e)
			}
			return errAnswered
		}
		return nil
	})
	if !errors.Is(err, errAnswered) {
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
