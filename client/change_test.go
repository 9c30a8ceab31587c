package client

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client/leases"
	"leasehold.dev/lease"
)

// TestChangeTTL checks that a client applies a shorter TTL before it requests the change. It keeps
// applying that TTL, despite any later changes, for as long as the request may still take effect. A
// refused change has no effect on later changes.
func TestChangeTTL(t *testing.T) {
	inBubble(t, 1, exact, func(t *testing.T, c *Client, f *fake) {
		l := grant(t, c, Grant{})
		change := func(d time.Duration, answer func(*fakeStream, *pb.Request) []*pb.Response) error {
			f.tries(func(s *fakeStream, r *pb.Request) []*pb.Response {
				if d < ttl {
					within(t, l, d)
				}
				return answer(s, r)
			})
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			defer cancel()
			return l.ChangeTTL(ctx, d)
		}
		want(t, change(time.Second, refuses(pb.Reason_REASON_INVALID)), ErrInvalid)
		within(t, l, time.Second)
		if err := change(time.Hour, f.obey); err != nil {
			t.Error(err)
		}
		within(t, l, time.Hour)
		want(t, change(time.Second, silent), ErrUnknownOutcome, context.DeadlineExceeded)
		within(t, l, time.Second-10*time.Millisecond)
		for _, d := range []time.Duration{time.Hour, time.Second, time.Hour} {
			if err := change(d, f.obey); err != nil {
				t.Error(err)
			}
			within(t, l, time.Second)
		}
	})
}

// TestChangeTTLAgain checks that a change is requested again if its response was lost. The new TTL
// is counted from before the attempt that is answered (T2).
func TestChangeTTLAgain(t *testing.T) {
	for name, tt := range map[string]struct{ has, left, want time.Duration }{
		"done once":        {time.Hour, time.Hour, time.Hour},
		"another since":    {time.Minute, time.Minute, time.Minute},
		"ended in between": {time.Hour, 0, ttl + firstRenewal - time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 2, exact, func(t *testing.T, c *Client, f *fake) {
				withSession(t, c, f)
				l := grant(t, c, Grant{})
				lost := func(s *fakeStream, _ *pb.Request) []*pb.Response {
					time.AfterFunc(time.Second, func() { close(s.cut) })
					return nil
				}
				again := func(_ *fakeStream, r *pb.Request) []*pb.Response {
					return []*pb.Response{{Id: r.Id, Body: &pb.Response_ChangeTtl{
						ChangeTtl: &pb.ChangeTTLResponse{Lease: &pb.Lease{
							TtlMs: tt.has.Milliseconds(), RemainingMs: tt.left.Milliseconds(),
						}},
					}}}
				}
				f.tries(lost, again)
				err := l.ChangeTTL(t.Context(), time.Hour)
				if gone := tt.left == 0; gone != errors.Is(err, ErrLeaseNotFound) || !gone && err != nil {
					t.Error(err)
				}
				about(t, l, tt.want)
			})
		})
	}
}

// TestChangeTTLOneAtATime checks that changes to a lease's TTL are made one at a time. Otherwise
// the client could rely on the first response for longer than the second change allows (T2).
func TestChangeTTLOneAtATime(t *testing.T) {
	inBubble(t, 1, exact, func(t *testing.T, c *Client, f *fake) {
		withSession(t, c, f)
		l := grant(t, c, Grant{})
		f.tries(silent)
		errs := make(chan error, 2)
		change := func(ctx context.Context, d time.Duration) {
			go func() { errs <- l.ChangeTTL(ctx, d) }()
			synctest.Wait()
		}
		change(t.Context(), time.Hour)
		ctx, cancel := context.WithCancel(t.Context())
		change(ctx, time.Minute)
		cancel()
		want(t, <-errs, context.Canceled)
		change(t.Context(), time.Second)
		_, asked := f.sentNumbers()
		if len(asked) != 1 {
			t.Fatalf("asked for %v", asked)
		}
		f.last().say(f.obey(nil, asked[0])...)
		for range 2 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		within(t, l, time.Second)
	})
}

// TestHandOver checks that the lease ends for this program before the hand-over is requested. The
// program can keep it again with the new token.
func TestHandOver(t *testing.T) {
	inBubble(t, 1, exact, func(t *testing.T, c *Client, f *fake) {
		l := grant(t, c, Grant{})
		f.tries(func(s *fakeStream, r *pb.Request) []*pb.Response {
			is(t, l, ErrHandedOver)
			return f.obey(s, r)
		})
		g, err := l.HandOver(t.Context(), "you")
		if err != nil {
			t.Fatal(err)
		}
		next, err := c.Keep(g, 0)
		if err != nil {
			t.Fatal(err)
		}
		if next.Token() != l.Token()+1 || next.Info().Owner != "you" {
			t.Errorf("lease %+v", next.Info())
		}
		within(t, next, ttl)
		is(t, l, ErrHandedOver)
		old := &Granted{Info: l.Info(), sent: g.sent} // the grant as received by another client
		var lost *LostError
		_, err = c.Keep(old, 0)
		if !errors.As(err, &lost) || *lost != (LostError{Cause: leases.HandedOver, Owner: "you"}) {
			t.Errorf("%v, want that it was handed over", err)
		}
		again, err := c.Keep(g, 0)
		if err != nil {
			t.Fatal(err)
		}
		is(t, next, ErrReplaced)
		is(t, again, nil)
	})
}

// TestHandOverAgain checks that the remaining time in a repeated response is counted from before
// the request was sent (T2, T3). A lease that has ended in the meantime cannot be kept.
func TestHandOverAgain(t *testing.T) {
	inBubble(t, 2, exact, func(t *testing.T, c *Client, f *fake) {
		withSession(t, c, f)
		for _, left := range []time.Duration{ttl / 2, 0} {
			f.set(func() { f.answer = f.obey })
			l := grant(t, c, Grant{})
			f.tries(breaks, func(s *fakeStream, r *pb.Request) []*pb.Response {
				// otherwise a renewal, which is due immediately, could already count
				f.answer = silent
				out := f.obey(s, r)
				out[0].GetHandOver().Lease.RemainingMs = left.Milliseconds()
				return out
			})
			g, err := l.HandOver(t.Context(), "you")
			if err != nil {
				t.Fatal(err)
			}
			next, err := c.Keep(g, 0)
			if left == 0 {
				want(t, err, ErrExpired)
				continue
			}
			about(t, next, left)
		}
	})
}

// about checks how long a lease remains valid. It allows for a short pause before a retry.
func about(t *testing.T, l *Lease, want time.Duration) {
	t.Helper()
	rest := time.Until(l.ValidUntil())
	if rest > want || rest < want-100*time.Millisecond {
		t.Errorf("valid for %v, want about %v", rest, want)
	}
}

// TestReads checks that queries about leases are retried on the next member and end with their
// context.
func TestReads(t *testing.T) {
	inBubble(t, 2, exact, func(t *testing.T, c *Client, f *fake) {
		first := f.last()
		f.set(func() {
			f.answer = func(s *fakeStream, r *pb.Request) []*pb.Response {
				if s == first {
					return breaks(s, r)
				}
				return f.obey(s, r)
			}
		})
		i, err := c.DescribeKeys(t.Context(), leases.Ref{ID: 7})
		if err != nil || i.ID != 7 || f.last() == first {
			t.Errorf("%+v, %v", i, err)
		}
		valid, current, err := c.CheckLease(t.Context(), leases.Ref{ID: 7, Token: 1})
		if err != nil || !valid || current != 1 {
			t.Errorf("%t, %d, %v", valid, current, err)
		}
		for i, err := range c.List(t.Context(), leases.Filter{}) {
			if err != nil || i.ID != 7 {
				t.Errorf("%+v, %v", i, err)
			}
		}
		f.set(func() { f.answer = silent })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = c.DescribeKeys(ctx, leases.Ref{ID: 7})
		if want(t, err, context.DeadlineExceeded); errors.Is(err, ErrUnknownOutcome) {
			t.Error(err)
		}
	})
}

// TestKeepAgain checks which leases can be kept again with their original grant. A lease that was
// only closed can. A lease that was handed over, or that the cluster reported gone, cannot (T19,
// T25). A hand-over through an old handle also ends newer handles of the same incarnation.
func TestKeepAgain(t *testing.T) {
	inBubble(t, 1, exact, func(t *testing.T, c *Client, f *fake) {
		handOver := func(l *Lease) error {
			_, err := l.HandOver(t.Context(), "you")
			return err
		}
		for _, tt := range []struct {
			what string
			end  func(*Lease) error
			want error
		}{
			{"revoked", func(l *Lease) error { return l.Revoke(t.Context()) }, ErrReleased},
			{
				"revoked by its ID",
				func(l *Lease) error { return c.Revoke(t.Context(), leases.Ref{ID: l.ID()}) }, ErrReleased,
			},
			{"handed over", handOver, ErrHandedOver},
			{"closed, and handed over", func(l *Lease) error {
				l.Close()
				return handOver(l)
			}, ErrHandedOver},
			{"gone", func(*Lease) error {
				f.set(func() {
					f.answer = func(s *fakeStream, r *pb.Request) []*pb.Response {
						if m := r.GetRenew(); m != nil {
							return []*pb.Response{{
								Id: r.Id, Body: renewed(m, pb.Reason_REASON_LEASE_NOT_FOUND),
							}}
						}
						return f.obey(s, r)
					}
				})
				pass(ttl / 2)
				f.set(func() { f.answer = f.obey })
				return nil
			}, ErrLost},
			{"closed", func(l *Lease) error { l.Close(); return nil }, nil},
		} {
			g, err := c.GrantOnly(t.Context(), Grant{TTL: ttl})
			if err != nil {
				t.Fatal(err)
			}
			keep := func() (*Lease, error) { return c.Keep(g, 0) }
			first, err := keep()
			if err != nil {
				t.Fatal(err)
			}
			newer, err := keep()
			if err != nil {
				t.Fatal(err)
			}
			want(t, first.Err(), ErrReplaced)
			held := newer
			if tt.want == ErrHandedOver {
				held = first // an older handle can hand over the lease as well
			}
			if err := tt.end(held); err != nil {
				t.Errorf("%s: %v", tt.what, err)
			}
			if tt.what != "closed, and handed over" && tt.want != nil {
				want(t, newer.Err(), tt.want)
			}
			again, err := keep()
			if want(t, err, tt.want); err == nil {
				again.Close()
			}
		}
	})
}

// TestKeepRevoked checks that a lease that was revoked by reference, without being kept, cannot be
// kept again with its grant (T19). References to other incarnations have no effect. The client
// forgets leases that can no longer be kept.
func TestKeepRevoked(t *testing.T) {
	inBubble(t, 1, exact, func(t *testing.T, c *Client, _ *fake) {
		grant := func() *Granted {
			g, err := c.GrantOnly(t.Context(), Grant{TTL: ttl})
			if err != nil {
				t.Fatal(err)
			}
			return g
		}
		for _, tt := range []struct {
			what string
			ref  func(g *Granted) leases.Ref
			want error
		}{
			{"by its ID", func(g *Granted) leases.Ref { return leases.Ref{ID: g.ID} }, ErrReleased},
			{
				"in this incarnation",
				func(g *Granted) leases.Ref { return leases.Ref{ID: g.ID, Token: g.Token} }, ErrReleased,
			},
			{
				"in another",
				func(g *Granted) leases.Ref { return leases.Ref{ID: g.ID, Token: g.Token + 1} }, nil,
			},
		} {
			for _, kept := range []bool{false, true} {
				g := grant()
				if kept {
					l, err := c.Keep(g, 0)
					if err != nil {
						t.Fatal(err)
					}
					l.Close()
				}
				_ = c.Revoke(t.Context(), tt.ref(g)) // the other incarnation is not found
				l, err := c.Keep(g, 0)
				if !errors.Is(err, tt.want) {
					t.Errorf("%s, kept before %t: %v", tt.what, kept, err)
				}
				if err == nil {
					l.Close()
				}
			}
		}
		g := grant()
		c.endings.followAll([]Result{{Txn: &TxnResult{Results: []Result{{Grant: g}}}}})
		g.ending.note(ErrLost)
		_ = c.Revoke(t.Context(), leases.Ref{ID: g.ID})
		_, err := c.Keep(g, 0)
		want(t, err, ErrLost) // the first error
	})
}

// TestEndingsForgotten checks that released leases use no memory, except for a few that were
// granted together with a lease that still exists.
func TestEndingsForgotten(t *testing.T) {
	var f endings
	for i := range lease.ID(100) {
		f.follow(&Granted{Info: leases.Info{ID: i%10 + 1, Token: 7}})
	}
	kept := f.follow(&Granted{Info: leases.Info{ID: 50, Token: 7}})
	// if the leases are never freed, the test times out
	for left := 0; left == 0 || left >= endingsTogether; runtime.Gosched() {
		runtime.GC()
		f.mu.Lock()
		left = len(f.of)
		f.mu.Unlock()
	}
	f.note(leases.Ref{ID: 50}, ErrReleased)
	want(t, kept.ending.why(), ErrReleased)
}
