package client

import (
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
)

// another creates a new client of the same fake members.
func another(t *testing.T, c Config, f *fake) *Client {
	t.Helper()
	out, err := start(c, []endpoint{{text: "a"}}, func(endpoint, *settings) (connection, error) {
		return fakeConn{f, "a"}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = out.Close() })
	synctest.Wait()
	return out
}

// TestT2OtherClient checks that a lease is timed from before its grant was sent, even if another
// client keeps it alive. It does not matter which of the two clients started first.
func TestT2OtherClient(t *testing.T) {
	inBubble(t, 1, exact, func(t *testing.T, c *Client, f *fake) {
		pass(time.Hour + 300*time.Microsecond)
		young := another(t, exact, f)
		for name, pair := range map[string][2]*Client{
			"from the older": {c, young}, "from the younger": {young, c}, "": {c, nil},
		} {
			g, err := pair[0].GrantOnly(t.Context(), Grant{TTL: ttl})
			if err != nil {
				t.Fatal(err)
			}
			sent := time.Now()
			pass(2 * time.Second)
			keeper := pair[1]
			if keeper == nil {
				name, keeper = "from before it was made", another(t, exact, f)
			}
			f.set(func() { f.answer = silent }) // so that no renewal extends it
			l, err := keeper.Keep(g, 0)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			until := l.ValidUntil()
			f.set(func() { f.answer = f.obey })
			if rest := until.Sub(sent); rest > ttl || rest < ttl-2*time.Millisecond {
				t.Errorf("%s: valid for %v from the grant on, want %v", name, rest, ttl)
			}
			l.Close()
		}
		g, err := c.GrantOnly(t.Context(), Grant{TTL: ttl})
		if err != nil {
			t.Fatal(err)
		}
		pass(ttl)
		_, err = young.Keep(g, 0)
		want(t, err, ErrExpired)
	})
}

// TestT24 checks that requested durations and durations subtracted from a validity are rounded up,
// and that remaining times are rounded down. No value wraps around at the maximum time, and
// impossible TTLs are not requested.
func TestT24(t *testing.T) {
	c := Config{Drift: -1, Margin: time.Millisecond + 1}
	inBubble(t, 1, c, func(t *testing.T, c *Client, f *fake) {
		l := grant(t, c, Grant{TTL: ttl - 1})
		within(t, l, ttl-2*time.Millisecond)
		pass(1)
		within(t, l, ttl-2*time.Millisecond-1)
		g, err := c.GrantOnly(t.Context(), Grant{TTL: ttl})
		if err != nil {
			t.Fatal(err)
		}
		// otherwise a renewal, which is due immediately, could already count
		f.set(func() { f.answer = silent })
		g.Remaining = 3*time.Second - 1
		if l, err = c.Keep(g, math.MaxInt64); err != nil {
			t.Fatal(err)
		}
		if rest := time.Until(l.ValidUntil()); rest > 3*time.Second-3*time.Millisecond {
			t.Errorf("valid for %v", rest)
		}
		f.tries(func(_ *fakeStream, r *pb.Request) []*pb.Response {
			t.Error("it was asked for")
			return refuse(r, pb.Reason_REASON_INVALID)
		})
		for _, bad := range []time.Duration{0, -1, math.MinInt64} {
			want(t, l.ChangeTTL(t.Context(), bad), ErrInvalid)
			is(t, l, nil)
		}
		for _, long := range []int64{math.MaxInt64, math.MaxInt64 / 1_000_000} {
			f.tries(func(_ *fakeStream, r *pb.Request) []*pb.Response {
				m := &pb.Lease{Id: int64(l.ID()), TtlMs: long, RemainingMs: long}
				return []*pb.Response{{Id: r.Id, Body: &pb.Response_ChangeTtl{
					ChangeTtl: &pb.ChangeTTLResponse{Lease: m},
				}}}
			})
			if err := l.ChangeTTL(t.Context(), math.MaxInt64); err != nil {
				t.Fatal(err)
			}
			is(t, l, nil)
			if until := l.ValidUntil(); time.Until(until) < 200*365*24*time.Hour {
				t.Errorf("with the longest TTL valid until %v", until)
			}
		}
	})
}

// renewals returns an answer function that answers each renewal with a reason and obeys all other
// requests.
func (f *fake) renewals(reason pb.Reason) func(*fakeStream, *pb.Request) []*pb.Response {
	return func(s *fakeStream, r *pb.Request) []*pb.Response {
		if r.GetRenew() == nil {
			return f.obey(s, r)
		}
		return []*pb.Response{{Id: r.Id, Body: renewed(r.GetRenew(), reason)}}
	}
}

// TestT7 checks that a lease stays alive when a lagging member answers its renewal with
// "unavailable", and that the lease is renewed there or on another member as soon as possible.
func TestT7(t *testing.T) {
	inBubble(t, 2, exact, func(t *testing.T, c *Client, f *fake) {
		l := grant(t, c, Grant{})
		first := f.last()
		f.set(func() {
			f.down[first.name] = true
			close(first.cut)
			f.answer = f.renewals(pb.Reason_REASON_UNAVAILABLE)
		})
		pass(ttl / 2)
		is(t, l, nil)
		within(t, l, ttl/2)
		f.set(func() { f.answer = f.obey })
		pass(ttl / 4)
		is(t, l, nil)
		if time.Until(l.ValidUntil()) < ttl/2 {
			t.Errorf("not renewed: valid until %v", l.ValidUntil())
		}
	})
}

// TestT9 checks that a released lease is never renewed again, even if the client moves between
// members, so that the lease ends.
func TestT9(t *testing.T) {
	inBubble(t, 3, exact, func(t *testing.T, c *Client, f *fake) {
		given, kept := grant(t, c, Grant{ID: 100}), grant(t, c, Grant{ID: 200})
		given.Close()
		before := len(f.requests())
		for range 6 {
			f.set(func() { close(f.opened[len(f.opened)-1].cut) })
			pass(ttl / 2)
		}
		is(t, kept, nil)
		renewals := 0
		for _, r := range f.requests()[before:] {
			for _, id := range r.GetRenew().GetIds() {
				if renewals++; id == int64(given.ID()) {
					t.Fatal("it was renewed")
				}
			}
		}
		if len(f.opened) < 7 || renewals < 6 {
			t.Errorf("%d streams, %d renewals", len(f.opened), renewals)
		}
	})
}

// TestT15 checks two leases that are renewed together. If one renewal is not answered, the other
// lease is unaffected.
func TestT15(t *testing.T) {
	inBubble(t, 1, exact, func(t *testing.T, c *Client, f *fake) {
		slow, other := grant(t, c, Grant{ID: 100}), grant(t, c, Grant{ID: 200})
		f.set(func() {
			f.answer = func(_ *fakeStream, r *pb.Request) []*pb.Response {
				i := slices.Index(r.GetRenew().GetIds(), int64(other.ID()))
				if i < 0 {
					return nil
				}
				m := &pb.RenewResponse{TtlMs: make([]int64, len(r.GetRenew().Ids))}
				m.TtlMs[i] = fakeTTL
				return []*pb.Response{{
					Id: r.Id, More: true, Body: &pb.Response_Renew{Renew: m},
				}}
			}
		})
		pass(3 * ttl)
		is(t, slow, ErrExpired)
		is(t, other, nil)
	})
}

// TestT28 checks that renewals and revocations specify the incarnation, and that late responses for
// an old incarnation do not affect a new one.
func TestT28(t *testing.T) {
	inBubble(t, 1, exact, func(t *testing.T, c *Client, f *fake) {
		token := uint64(0)
		f.set(func() {
			f.answer = func(s *fakeStream, r *pb.Request) []*pb.Response {
				out := f.obey(s, r)
				if r.GetGrant() != nil {
					token++
					out[0].GetGrant().Lease.Token = token
				}
				return out
			}
		})
		answer := f.answer
		old := grant(t, c, Grant{ID: 7})
		f.set(func() { f.answer = silent })
		pass(ttl / 2)
		late := f.requests()
		f.set(func() { f.answer = answer })
		next := grant(t, c, Grant{ID: 7})
		is(t, old, ErrReplaced)
		for _, r := range late {
			if r.GetRenew() != nil {
				reason := pb.Reason_REASON_LEASE_NOT_FOUND
				f.last().say(&pb.Response{Id: r.Id, Body: renewed(r.GetRenew(), reason)})
			}
		}
		before := len(f.requests())
		pass(ttl)
		if err := old.Revoke(t.Context()); err != nil {
			t.Error(err)
		}
		is(t, next, nil)
		renewals, revoked := 0, uint64(0)
		for _, r := range f.requests()[before:] {
			for _, token := range r.GetRenew().GetTokens() {
				if renewals++; token != uint64(next.Token()) {
					t.Errorf("renewal with token %d", token)
				}
			}
			for _, ref := range r.GetRevoke().GetLeases() {
				revoked = ref.Token
			}
		}
		if renewals == 0 || revoked != uint64(old.Token()) {
			t.Errorf("%d renewals, revoked with token %d", renewals, revoked)
		}
	})
}

// TestT32 checks that no leases are renewed without a quorum. Each holder stops by its own clock. A
// lease with a grace is in jeopardy and continues if the quorum returns in time.
func TestT32(t *testing.T) {
	refusals := map[string]func(*fake) func(*fakeStream, *pb.Request) []*pb.Response{
		"each lease": func(f *fake) func(*fakeStream, *pb.Request) []*pb.Response {
			return f.renewals(pb.Reason_REASON_UNAVAILABLE)
		},
		"everything": func(*fake) func(*fakeStream, *pb.Request) []*pb.Response {
			return refuses(pb.Reason_REASON_UNAVAILABLE)
		},
	}
	for name, refusal := range refusals {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 3, exact, func(t *testing.T, c *Client, f *fake) {
				stops, short := grant(t, c, Grant{}), grant(t, c, Grant{Grace: time.Second})
				holdsOn := grant(t, c, Grant{Grace: time.Minute})
				f.set(func() { f.answer = refusal(f) })
				pass(ttl - 1)
				is(t, stops, nil)
				pass(1)
				is(t, stops, ErrExpired)
				is(t, short, ErrJeopardy)
				is(t, holdsOn, ErrJeopardy)
				pass(30 * time.Second)
				is(t, short, ErrExpired)
				is(t, holdsOn, ErrJeopardy)
				f.set(func() { f.answer = f.obey })
				pass(20 * time.Second)
				is(t, holdsOn, nil)
				is(t, stops, ErrExpired)
			})
		})
	}
}
