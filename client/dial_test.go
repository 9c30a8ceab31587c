package client

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/store"
)

// gate is an in-memory gRPC server of leasehold.v1.StreamService. It answers like a fake.
type gate struct {
	pb.UnimplementedStreamServiceServer
	fake   *fake
	closed atomic.Bool // no more messages can be sent
}

func (g *gate) Open(s pb.StreamService_OpenServer) error {
	for {
		m, err := s.Recv()
		if err != nil {
			return err
		}
		if g.closed.Load() {
			continue
		}
		out := &pb.ServerMessage{}
		for _, r := range m.Requests {
			g.fake.set(func() { out.Responses = append(out.Responses, g.fake.obey(nil, r)...) })
		}
		if err := s.Send(out); err != nil {
			return err
		}
	}
}

// dialed runs a test in virtual time, with a client that connects to a server through Config.Dial.
func dialed(
	t *testing.T, c Config, register func(*grpc.Server), test func(*testing.T, *Client),
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		listener, s := bufconn.Listen(64<<10), grpc.NewServer()
		register(s)
		served := make(chan error, 1)
		go func() { served <- s.Serve(listener) }()
		c.Endpoints = []string{"http://far.away:1"}
		c.Dial = func(ctx context.Context, endpoint string) (net.Conn, error) {
			if endpoint != c.Endpoints[0] {
				t.Errorf("dial %q", endpoint)
			}
			return listener.DialContext(ctx)
		}
		client, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		test(t, client)
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		s.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// TestDial checks that a client, including gRPC, runs in virtual time if its connections are in
// memory. A lease is kept alive for a day, and expires with millisecond precision when the server
// stops answering.
func TestDial(t *testing.T) {
	g := &gate{fake: &fake{}}
	register := func(s *grpc.Server) { pb.RegisterStreamServiceServer(s, g) }
	dialed(t, exact, register, func(t *testing.T, c *Client) {
		l := grant(t, c, Grant{})
		if _, err := c.Put(t.Context(), store.Put{Key: "k", Lease: l.ID()}); err != nil {
			t.Error(err)
		}
		pass(24 * time.Hour)
		is(t, l, nil)
		synctest.Wait() // no renewal is in flight
		g.closed.Store(true)
		until := time.Until(l.ValidUntil())
		pass(until - 1)
		is(t, l, nil)
		pass(1)
		is(t, l, ErrExpired)
	})
}

// TestNotLeasehold checks that a client immediately reports servers without leasehold.v1, such as
// etcd. The error says that nothing was done.
func TestNotLeasehold(t *testing.T) {
	dialed(t, exact, func(*grpc.Server) {}, func(t *testing.T, c *Client) {
		start := time.Now()
		for what, err := range fail(t.Context(), c) {
			if want(t, err, ErrNotLeasehold); errors.Is(err, ErrUnknownOutcome) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// fail performs one call of each type and returns the errors.
func fail(ctx context.Context, c *Client) map[string]error {
	out := make(map[string]error)
	_, out["get"] = c.Get(ctx, "k")
	_, out["put"] = c.Put(ctx, store.Put{Key: "k"})
	_, out["grant"] = c.Grant(ctx, Grant{TTL: time.Minute})
	out["revoke"] = c.Revoke(ctx, leases.Ref{ID: 1})
	_, out["watch"] = c.Watch(ctx, store.Watch{Key: "k"})
	_, out["events"] = c.LeaseEvents(ctx, leases.Watch{})
	return out
}

// TestNothingDone checks that a request counts as not applied if it was sent to a server that has
// never supported leasehold.v1.
func TestNothingDone(t *testing.T) {
	inBubble(t, 1, exact, func(t *testing.T, c *Client, f *fake) {
		f.set(func() { f.answer = silent })
		granted := make(chan error, 1)
		go func() {
			_, err := c.GrantOnly(t.Context(), Grant{TTL: time.Minute})
			granted <- err
		}()
		synctest.Wait()
		f.set(func() {
			f.foreign["a"] = true
			close(f.opened[0].cut)
		})
		err := <-granted
		if want(t, err, ErrNotLeasehold); errors.Is(err, ErrUnknownOutcome) {
			t.Error(err)
		}
	})
}

// TestSomeNotLeasehold checks that the error reports both problems if some servers are not
// Leasehold and the others are unreachable. The client continues once an unreachable member is
// back.
func TestSomeNotLeasehold(t *testing.T) {
	inBubble(t, 3, exact, func(t *testing.T, c *Client, f *fake) {
		f.set(func() {
			f.foreign["a"], f.down["b"], f.dead["c"] = true, true, true
			close(f.opened[0].cut)
		})
		for what, err := range fail(t.Context(), c) {
			if want(t, err, ErrNotLeasehold); errors.Is(err, ErrUnknownOutcome) {
				t.Errorf("%s: %v", what, err)
			}
		}
		pass(time.Minute)
		if n := f.streams(); n > 200 {
			t.Errorf("%d streams in a minute", n)
		}
		f.set(func() { delete(f.down, "b") })
		pass(time.Second)
		for range 10 {
			if _, err := c.Put(t.Context(), store.Put{Key: "k"}); err != nil {
				t.Error(err)
			}
			pass(time.Second)
		}
		// A caller that looks for another member just as the client leaves this one must not get an
		// old result.
		f.set(func() { f.answer = silent })
		l, unusable := c.mux.current(), errors.New("nobody looked")
		q := newProbe()
		q.done = func(*pb.Response, error) { _, unusable = c.mux.unusable() }
		if err := l.submit(q); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		notify(l.bad)
		synctest.Wait()
		if unusable != nil {
			t.Error(unusable)
		}
	})
}
