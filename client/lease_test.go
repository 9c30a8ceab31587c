package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/store"
	"leasehold.dev/lease"
)

// exact is a Config without safety margins for drift or processing time.
var exact = Config{Drift: -1, Margin: -1}

const ttl = fakeTTL * time.Millisecond

func grant(t *testing.T, c *Client, g Grant) *Lease {
	t.Helper()
	if g.TTL == 0 {
		g.TTL = ttl
	}
	l, err := c.Grant(t.Context(), g)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// is checks that a lease is valid if err is nil, and otherwise that err is the reason why it is
// not. It checks Err, Valid and Context.
func is(t *testing.T, l *Lease, err error) {
	t.Helper()
	if got := l.Err(); !errors.Is(got, err) || (got == nil) != (err == nil) {
		t.Errorf("the lease has error %v, want %v", got, err)
	}
	if l.Valid() != (err == nil) {
		t.Errorf("valid: %t, with error %v", l.Valid(), err)
	}
	cause := context.Cause(l.Context())
	if (cause == nil) != (err == nil) || !errors.Is(cause, err) && !errors.Is(cause, ErrJeopardy) {
		t.Errorf("the context has ended for %v, want %v", cause, err)
	}
}

// within checks how much longer a lease is valid.
func within(t *testing.T, l *Lease, want time.Duration) {
	t.Helper()
	if got := time.Until(l.ValidUntil()); got != want {
		t.Errorf("valid for %v, want %v", got, want)
	}
}

// TestT2 checks that the validity of a lease is counted from before its grant and each renewal were
// sent, even if the responses arrive late.
func TestT2(t *testing.T) {
	inBubble(t, 1, Config{Drift: 1e-2, Margin: 10 * time.Millisecond},
		func(t *testing.T, c *Client, f *fake) {
			const slow = 2 * time.Second
			f.set(func() {
				f.answer = func(s *fakeStream, r *pb.Request) []*pb.Response {
					time.AfterFunc(slow, func() { s.say(f.obey(s, r)...) })
					return nil
				}
			})
			l := grant(t, c, Grant{})
			const valid = ttl - ttl/100 - 10*time.Millisecond
			within(t, l, valid-slow)
			pass(30 * time.Second)
			synctest.Wait()
			last := time.Time{}
			for _, s := range f.seen {
				if s.message.Requests[0].GetRenew() != nil && time.Since(s.at) >= slow {
					last = s.at
				}
			}
			within(t, l, valid-time.Since(last))
			is(t, l, nil)
		})
}

// TestBatches checks that a client renews its leases together.
func TestBatches(t *testing.T) {
	inBubble(t, 1, exact, func(t *testing.T, c *Client, f *fake) {
		const n = 500
		list := make([]*Lease, n)
		for i := range list {
			list[i] = grant(t, c, Grant{ID: lease.ID(i + 1)})
		}
		before := len(f.requests())
		pass(time.Minute)
		for _, l := range list {
			is(t, l, nil)
		}
		renewals := 0
		for _, r := range f.requests()[before:] {
			renewals += len(r.GetRenew().GetIds())
		}
		// Each lease is renewed after a third of its TTL, or up to a sixth of it earlier.
		if requests := len(f.requests()) - before; requests > 1000 || renewals < n*20 ||
			renewals > n*40 {
			t.Errorf("%d requests for %d renewals", requests, renewals)
		}
	})
}

// TestJeopardy checks that a lease whose renewals are not acknowledged is in jeopardy once its
// validity ends. Within its grace it can recover, and it remains the same lease.
func TestJeopardy(t *testing.T) {
	inBubble(t, 1, exact, func(t *testing.T, c *Client, f *fake) {
		start := time.Now()
		l := grant(t, c, Grant{Grace: 5 * time.Second})
		first := l.Context()
		f.set(func() { f.answer = silent })
		<-first.Done()
		if got := time.Since(start); got != ttl {
			t.Errorf("the context ended after %v", got)
		}
		is(t, l, ErrJeopardy)
		changed := l.Changed()
		pass(2 * time.Second)
		is(t, l, ErrJeopardy)
		f.set(func() { f.answer = f.obey })
		<-changed
		is(t, l, nil)
		if first.Err() == nil {
			t.Error("a context came back to life")
		}
	})
}

// TestExpired checks that a lease has ended for good after its grace, and that nothing can revive
// it (T25).
func TestExpired(t *testing.T) {
	for _, grace := range []time.Duration{0, 3 * time.Second} {
		inBubble(t, 1, exact, func(t *testing.T, c *Client, f *fake) {
			start := time.Now()
			l := grant(t, c, Grant{Grace: grace})
			f.set(func() { f.answer = silent })
			for !errors.Is(l.Err(), ErrExpired) {
				<-l.Changed()
			}
			if got := time.Since(start); got != ttl+grace {
				t.Errorf("ended after %v", got)
			}
			is(t, l, ErrExpired)
			synctest.Wait()
			list := f.requests()
			f.set(func() { f.answer = f.obey })
			for _, r := range list { // the overdue responses arrive now
				f.last().say(f.obey(nil, r)...)
			}
			pass(time.Hour)
			is(t, l, ErrExpired)
			for _, r := range f.requests()[len(list):] {
				if r.GetRenew() != nil {
					t.Fatalf("it was renewed: %v", r)
				}
			}
		})
	}
}

// TestT19 checks that after a call to Revoke, whatever it returns, the lease is never valid again,
// even if renewals that were sent earlier are answered later.
func TestT19(t *testing.T) {
	inBubble(t, 1, exact, func(t *testing.T, c *Client, f *fake) {
		l, other := grant(t, c, Grant{}), grant(t, c, Grant{})
		f.set(func() { f.answer = silent })
		pass(ttl / 2)
		synctest.Wait()
		pending := f.requests()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := l.Revoke(ctx)
		want(t, err, ErrUnknownOutcome, context.DeadlineExceeded)
		is(t, l, ErrReleased)
		other.Close()
		for _, r := range pending {
			f.last().say(f.obey(nil, r)...)
		}
		synctest.Wait()
		is(t, l, ErrReleased)
		is(t, other, ErrClosed)
		f.set(func() { f.answer = f.obey })
		if err := c.Revoke(t.Context(), l.Ref(), other.Ref()); err != nil {
			t.Error(err)
		}
		is(t, other, ErrClosed)
	})
}

// TestT3 checks that a grant is sent again with the same request ID if its response was lost. The
// TTL is counted from before the attempt that is answered.
func TestT3(t *testing.T) {
	inBubble(t, 2, exact, func(t *testing.T, c *Client, f *fake) {
		var made, again time.Time
		ids := make(map[string]int)
		f.set(func() {
			f.answer = func(s *fakeStream, r *pb.Request) []*pb.Response {
				g := r.GetGrant()
				if g == nil {
					return f.obey(s, r)
				}
				ids[g.RequestId]++
				if made.IsZero() {
					made = time.Now()
					time.AfterFunc(2*time.Second, func() { close(s.cut) })
					return nil
				}
				again = time.Now()
				left := ttl - time.Second
				return []*pb.Response{{Id: r.Id, Body: &pb.Response_Grant{Grant: &pb.GrantResponse{
					Existed: true, Lease: &pb.Lease{
						Id: 7, Token: 1, TtlMs: fakeTTL, RemainingMs: left.Milliseconds(),
					},
				}}}}
			}
		})
		l := grant(t, c, Grant{Name: "n"})
		if len(ids) != 1 || !l.Existed() {
			t.Errorf("request ids %v, existed %v", ids, l.Existed())
		}
		if until := l.ValidUntil(); until.After(again.Add(ttl-time.Second)) ||
			until.Before(again.Add(ttl-time.Second-time.Millisecond)) {
			t.Errorf("valid for %v after it was asked for again", until.Sub(again))
		}
	})
}

// TestLateGrant checks that a grant fails if its response arrives when the lease may already have
// ended.
func TestLateGrant(t *testing.T) {
	inBubble(t, 1, exact, func(t *testing.T, c *Client, f *fake) {
		f.set(func() {
			f.answer = func(s *fakeStream, r *pb.Request) []*pb.Response {
				time.AfterFunc(ttl, func() { s.say(f.obey(s, r)...) })
				return nil
			}
		})
		_, err := c.Grant(t.Context(), Grant{TTL: ttl})
		want(t, err, ErrExpired)
	})
}

// TestMemberStops checks that leases survive when the connected member is stopped, cut off or
// killed, even if their TTL is short compared to Config.Silence.
func TestMemberStops(t *testing.T) {
	faults := map[string]func(*fake, *fakeStream){
		"stopped": func(f *fake, s *fakeStream) { f.frozen[s.name] = true },
		"killed":  func(f *fake, s *fakeStream) { f.down[s.name] = true; close(s.cut) },
		"no leader": func(f *fake, s *fakeStream) {
			f.answer = func(at *fakeStream, r *pb.Request) []*pb.Response {
				if at.name == s.name {
					return []*pb.Response{{
						Id: r.Id, Body: renewed(r.GetRenew(), pb.Reason_REASON_UNAVAILABLE),
					}}
				}
				return f.obey(at, r)
			}
		},
	}
	for name, fault := range faults {
		for _, silence := range []time.Duration{0, time.Hour} {
			t.Run(fmt.Sprint(name, silence), func(t *testing.T) {
				c := exact
				c.Silence = silence
				inBubble(t, 3, c, func(t *testing.T, c *Client, f *fake) {
					l := grant(t, c, Grant{})
					f.set(func() { fault(f, f.opened[0]) })
					pass(10 * ttl)
					is(t, l, nil)
					if f.last().name == f.opened[0].name {
						t.Error("it is still with that member")
					}
				})
			})
		}
	}
}

// TestTxnGrant checks that a lease granted in a transaction can be kept unless it may have ended.
// The response to a repeated request can arrive that late.
func TestTxnGrant(t *testing.T) {
	inBubble(t, 1, exact, func(t *testing.T, c *Client, f *fake) {
		left := int64(fakeTTL)
		f.set(func() {
			f.answer = func(s *fakeStream, r *pb.Request) []*pb.Response {
				if r.GetTxn() == nil {
					return f.obey(s, r)
				}
				return []*pb.Response{{Id: r.Id, Body: &pb.Response_Txn{Txn: &pb.TxnResponse{
					Succeeded: true, Responses: []*pb.OpResponse{{
						Response: &pb.OpResponse_Grant{Grant: &pb.GrantResponse{
							Lease: &pb.Lease{Id: 5, Token: 2, TtlMs: fakeTTL, RemainingMs: left},
						}},
					}},
				}}}}
			}
		})
		granted := func() *Granted {
			t.Helper()
			r, err := c.Txn(t.Context(), store.Txn{Then: []store.Op{Grant{TTL: ttl}}})
			if err != nil {
				t.Fatal(err)
			}
			return r.Results[0].Grant
		}
		l, err := c.Keep(granted(), 0)
		if err != nil {
			t.Fatal(err)
		}
		within(t, l, ttl)
		f.set(func() { left = 0 })
		_, err = c.Keep(granted(), 0)
		want(t, err, ErrExpired)
	})
}

// TestClock checks that the client's clock follows a wall clock that jumps forward, as after a
// suspend. A wall clock that jumps back does not stop it (T10).
func TestClock(t *testing.T) {
	for _, tt := range []struct{ monotonic, wall, want time.Duration }{
		{time.Second, time.Second, time.Second},
		{time.Second, time.Hour, time.Hour},
		{time.Second, -time.Hour, time.Second},
		{0, -time.Hour, 0},
	} {
		if got := step(tt.monotonic, tt.wall); got != tt.want {
			t.Errorf("step(%v, %v) = %v, want %v", tt.monotonic, tt.wall, got, tt.want)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		c := newClock(nil)
		pass(1500 * time.Microsecond)
		if c.now() != 1 || c.until(2) != 500*time.Microsecond {
			t.Errorf("now %v, until %v", c.now(), c.until(2))
		}
		if got := c.until(1<<63 - 1); got < 200*365*24*time.Hour {
			t.Errorf("the end of time comes in %v", got)
		}
	})
}

// TestSuspended checks that soon after a suspend, during which timers stop, leases that are still
// valid are renewed and the contexts of the others are canceled.
func TestSuspended(t *testing.T) {
	var asleep atomic.Int64
	c := exact
	c.Now = func() time.Time { return time.Now().Add(time.Duration(asleep.Load())) }
	inBubble(t, 1, c, func(t *testing.T, c *Client, f *fake) {
		short, long := grant(t, c, Grant{TTL: ttl}), grant(t, c, Grant{TTL: 4 * ttl})
		ctx := short.Context()
		pass(time.Second)
		before := len(f.requests())
		asleep.Add(int64(2 * ttl))
		pass(1100 * time.Millisecond)
		if ctx.Err() == nil {
			t.Error("the context of an expired lease is not cancelled")
		}
		if len(f.requests()) == before {
			t.Error("the other lease is not renewed")
		}
		is(t, long, nil)
		is(t, short, ErrExpired)
	})
}

// TestFailedKeepReplacesNothing checks that a failed Keep does not replace a lease. Keep fails if
// the validity in the grant has passed, even if the lease has been renewed since, or if the lease
// no longer has the grant's token.
func TestFailedKeepReplacesNothing(t *testing.T) {
	inBubble(t, 1, exact, func(t *testing.T, c *Client, f *fake) {
		g, err := c.GrantOnly(t.Context(), Grant{ID: 7, TTL: ttl})
		if err != nil {
			t.Fatal(err)
		}
		l, err := c.Keep(g, 0)
		if err != nil {
			t.Fatal(err)
		}
		pass(3 * ttl)
		_, err = c.Keep(g, 0)
		want(t, err, ErrExpired)
		is(t, l, nil)
		pass(3 * ttl)
		is(t, l, nil)
		if g, err = c.GrantOnly(t.Context(), Grant{ID: 7, TTL: ttl}); err != nil {
			t.Fatal(err)
		}
		newer, err := c.Resume(t.Context(), leases.Ref{ID: 7}, []byte("secret"), 0)
		if err != nil {
			t.Fatal(err)
		}
		is(t, l, ErrReplaced)
		_, err = c.Keep(g, 0)
		want(t, err, ErrLost)
		var lost *LostError
		owner := newer.Info().Owner
		if !errors.As(err, &lost) || *lost != (LostError{Cause: leases.Resumed, Owner: owner}) {
			t.Errorf("%v, want that %q has resumed it", err, owner)
		}
		is(t, newer, nil)
		within(t, newer, ttl)
	})
}

// TestLabelsAreTheCallers checks that a caller can modify its map after the call returns. A request
// that is sent later or resent contains the original labels.
func TestLabelsAreTheCallers(t *testing.T) {
	inBubble(t, 1, exact, func(t *testing.T, c *Client, f *fake) {
		f.set(func() { f.answer = silent })
		labels := map[string]string{"l": "v"}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.GrantOnly(ctx, Grant{TTL: ttl, Labels: labels})
		want(t, err, ErrUnknownOutcome)
		f.beginsAt(7)
		w := leaseEvents(t, c, leases.Watch{Labels: labels})
		labels["l"] = "changed"
		close(f.last().cut)
		pass(time.Second)
		asked := 0
		for _, r := range f.requests() {
			sent := r.GetGrant().GetLabels()
			if e := r.GetEvents(); e != nil {
				sent = e.Labels
			}
			if sent == nil {
				continue
			}
			if asked++; sent["l"] != "v" {
				t.Errorf("sent %v", r)
			}
		}
		if asked != 3 {
			t.Errorf("%d requests with labels", asked)
		}
		w.Close()
	})
}

// TestFirstRenewal checks that a new lease is renewed once within 250 ms. After that, the leader
// would checkpoint that the lease has not been renewed.
func TestFirstRenewal(t *testing.T) {
	inBubble(t, 1, exact, func(t *testing.T, c *Client, f *fake) {
		grant(t, c, Grant{})
		granted := time.Now()
		<-time.After(time.Second)
		var at []time.Duration
		f.set(func() {
			for _, s := range f.seen {
				for _, r := range s.message.Requests {
					if r.GetRenew() != nil {
						at = append(at, s.at.Sub(granted))
					}
				}
			}
		})
		want := []time.Duration{100 * time.Millisecond}
		if !slices.Equal(at, want) {
			t.Errorf("renewed %v after the grant, want %v", at, want)
		}
	})
}
