package client

import (
	"context"
	"errors"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client/metrics"
	"leasehold.dev/client/store"
)

// TestMetricsOfCalls checks that each call is counted once by its outcome, however many attempts it
// took.
func TestMetricsOfCalls(t *testing.T) {
	inBubble(t, 1, exact, func(t *testing.T, c *Client, f *fake) {
		withSession(t, c, f)
		counted := map[metrics.Outcome]uint64{
			metrics.OK: 1, metrics.Refused: 0, metrics.Unavailable: 0, metrics.Unknown: 0,
			metrics.TimedOut: 0, metrics.Canceled: 0,
		}
		read := func(ctx context.Context) error {
			_, err := c.Range(ctx, store.Range{Key: "k"})
			return err
		}
		put := func(ctx context.Context) error {
			_, err := c.Put(ctx, store.Put{Key: "k"})
			return err
		}
		answers := func(reason pb.Reason) func(*fakeStream, *pb.Request) []*pb.Response {
			return func(_ *fakeStream, r *pb.Request) []*pb.Response { return refuse(r, reason) }
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for _, tt := range []struct {
			outcome metrics.Outcome
			answer  func(*fakeStream, *pb.Request) []*pb.Response
			call    func(context.Context) error
			ctx     context.Context // has no deadline; nil for a context with a deadline
		}{
			{metrics.OK, f.obey, put, nil},
			{metrics.OK, f.obey, read, nil},
			{metrics.Refused, answers(pb.Reason_REASON_PERMISSION_DENIED), put, nil},
			{metrics.Refused, answers(pb.Reason_REASON_COMPACTED), read, nil},
			{metrics.Unavailable, answers(pb.Reason_REASON_UNAVAILABLE), put, nil},
			{metrics.Unavailable, answers(pb.Reason_REASON_UNAVAILABLE), read, nil},
			{metrics.Unknown, answers(pb.Reason_REASON_UNKNOWN_OUTCOME), put, nil},
			{metrics.Unknown, silent, put, nil},
			{metrics.TimedOut, silent, read, nil},
			{metrics.Canceled, silent, read, ended},
		} {
			f.set(func() { f.answer = tt.answer })
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if tt.ctx != nil {
				ctx = tt.ctx
			}
			err := tt.call(ctx)
			cancel()
			counted[tt.outcome]++
			if got := c.Metrics().Calls; !maps.Equal(got, counted) {
				t.Fatalf("after one that is %s (%v): %v, want %v", tt.outcome, err, got, counted)
			}
			f.set(func() { f.answer = f.obey })
			if _, err := c.Connection(t.Context()); err != nil {
				t.Fatal(err)
			}
		}

		f.set(func() { f.answer = silent })
		over := make(chan error)
		go func() { over <- read(t.Context()) }()
		synctest.Wait()
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		err := <-over
		counted[metrics.Canceled]++
		if got := c.Metrics().Calls; !maps.Equal(got, counted) {
			t.Errorf("after one that Close has ended (%v): %v, want %v", err, got, counted)
		}
	})
}

// TestMetricsOfLeases checks that metrics show leases in jeopardy before they end, and why leases
// ended.
func TestMetricsOfLeases(t *testing.T) {
	inBubble(t, 1, exact, func(t *testing.T, c *Client, f *fake) {
		if m := c.Metrics(); m.Leases != 0 || m.Valid != 0 {
			t.Errorf("without a lease: %+v", m)
		}
		long := grant(t, c, Grant{ID: 100, Grace: time.Hour})
		short, gone := grant(t, c, Grant{ID: 200}), grant(t, c, Grant{ID: 300, Grace: time.Hour})
		pass(time.Minute)
		m := c.Metrics()
		if m.Leases != 3 || m.InJeopardy != 0 || m.Valid <= 0 || m.Valid > ttl {
			t.Errorf("of three that are renewed: %+v", m)
		}
		if m.Renewals < 3*uint64(time.Minute/ttl) || m.RepeatedRenewals != 0 {
			t.Errorf("renewed for a minute: %+v", m)
		}

		old, err := c.GrantOnly(t.Context(), Grant{ID: 400, TTL: ttl})
		if err != nil {
			t.Fatal(err)
		}
		f.set(func() { f.answer = silent })
		<-short.Context().Done()
		<-long.Context().Done()
		<-gone.Context().Done()
		m = c.Metrics()
		if m.Leases != 2 || m.InJeopardy != 2 || m.Valid != 0 || m.Jeopardies != 2 ||
			m.Expired != 1 || m.RepeatedRenewals == 0 || m.RepeatedRenewals >= m.Renewals {
			t.Errorf("not renewed: %+v", m)
		}
		pass(ttl)
		late, err := c.Keep(old, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		if m = c.Metrics(); m.Leases != 3 || m.InJeopardy != 3 || m.Jeopardies != 3 {
			t.Errorf("one is kept that was not renewed: %+v", m)
		}

		f.set(func() {
			f.answer = func(s *fakeStream, r *pb.Request) []*pb.Response {
				if r.GetRenew() == nil {
					return f.obey(s, r)
				}
				m := renewed(r.GetRenew(), 0)
				for i, id := range r.GetRenew().Ids {
					if id == 300 {
						m.Renew.TtlMs[i] = 0
						m.Renew.Results = append(m.Renew.Results, &pb.RenewResult{
							Id: id, Reason: pb.Reason_REASON_LEASE_NOT_FOUND,
						})
					}
				}
				return []*pb.Response{{Id: r.Id, Body: m}}
			}
		})
		pass(time.Minute)
		is(t, long, nil)
		is(t, gone, ErrLost)
		m = c.Metrics()
		if m.Leases != 2 || m.InJeopardy != 0 || m.Valid <= 0 || m.Jeopardies != 3 || m.Lost != 1 ||
			m.Expired != 1 {
			t.Errorf("two are renewed again, and one is gone: %+v", m)
		}
		if err := errors.Join(long.Revoke(t.Context()), late.Revoke(t.Context())); err != nil {
			t.Fatal(err)
		}
		m = c.Metrics()
		if m.Leases != 0 || m.Lost+m.Expired != 2 {
			t.Errorf("revoked: %+v", m)
		}
	})
}

// TestMetricsOfConnections checks that metrics count connections that were opened, lost, left for
// the leader, or failed.
func TestMetricsOfConnections(t *testing.T) {
	inBubble(t, 2, exact, func(t *testing.T, c *Client, f *fake) {
		check := func(what string, want metrics.Snapshot) {
			t.Helper()
			pass(time.Minute)
			got := c.Metrics()
			if got.Connected != want.Connected || got.Connects != want.Connects ||
				got.Disconnects != want.Disconnects || got.Moves != want.Moves ||
				(got.FailedConnects > 0) != (want.FailedConnects > 0) {
				t.Errorf("%s: %+v, want %+v", what, got, want)
			}
		}
		check("connected", metrics.Snapshot{Connected: true, Connects: 1})
		at := f.last().name
		f.lead(map[string]string{"a": "b", "b": "a"}[at])
		check("the other leads", metrics.Snapshot{Connected: true, Connects: 1, Moves: 1})
		f.set(func() { f.leader, f.reportsLeader = "", false })
		close(f.last().cut)
		check("it broke", metrics.Snapshot{
			Connected: true, Connects: 2, Disconnects: 1, Moves: 1,
		})
		f.set(func() { f.down["a"], f.down["b"] = true, true })
		close(f.last().cut)
		check("none is there", metrics.Snapshot{
			Connects: 2, Disconnects: 2, Moves: 1, FailedConnects: 1,
		})
	})
}
