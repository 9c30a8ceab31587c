package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/store"
)

// writes returns a write of every type that has a number.
func writes(c *Client) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"put": func(ctx context.Context) error {
			_, err := c.Put(ctx, store.Put{Key: "k"})
			return err
		},
		"delete": func(ctx context.Context) error {
			_, err := c.Delete(ctx, store.Delete{Key: "k"})
			return err
		},
		"txn": func(ctx context.Context) error {
			_, err := c.Txn(ctx, store.Txn{Then: []store.Op{store.Put{Key: "k"}}})
			return err
		},
		"attach": func(ctx context.Context) error { return c.Attach(ctx, leases.Ref{ID: 7}, "k") },
		"detach": func(ctx context.Context) error { return c.Detach(ctx, leases.Ref{}, "k") },
		"hand over": func(ctx context.Context) error {
			l, err := c.Grant(ctx, Grant{TTL: time.Minute})
			if err == nil {
				_, err = l.HandOver(ctx, "you")
			}
			return err
		},
		"change ttl": func(ctx context.Context) error {
			l, err := c.Grant(ctx, Grant{TTL: time.Minute})
			if err == nil {
				defer l.Close()
				err = l.ChangeTTL(ctx, time.Hour)
			}
			return err
		},
		"resume": func(ctx context.Context) error {
			_, err := c.Resume(ctx, leases.Ref{ID: 7}, nil, 0)
			return err
		},
	}
}

// sentNumbers returns the messages that contain numbered requests, and all their numbered requests.
func (f *fake) sentNumbers() (messages []*pb.ClientMessage, requests []*pb.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.seen {
		n := len(requests)
		for _, r := range s.message.Requests {
			if r.Number != 0 {
				requests = append(requests, r)
			}
		}
		if len(requests) > n {
			messages = append(messages, s.message)
		}
	}
	return messages, requests
}

// tries makes the fake answer each attempt at a write with the next of the given functions. When
// none are left, it obeys all requests.
func (f *fake) tries(list ...func(*fakeStream, *pb.Request) []*pb.Response) {
	f.set(func() {
		f.answer = func(s *fakeStream, r *pb.Request) []*pb.Response {
			if r.Number == 0 || len(list) == 0 {
				return f.obey(s, r)
			}
			next := list[0]
			list = list[1:]
			return next(s, r)
		}
	})
}

// refuses makes a member answer with an error.
func refuses(reason pb.Reason) func(*fakeStream, *pb.Request) []*pb.Response {
	return func(_ *fakeStream, r *pb.Request) []*pb.Response { return refuse(r, reason) }
}

// breaks makes a member break the stream when it receives a request.
func breaks(s *fakeStream, _ *pb.Request) []*pb.Response {
	close(s.cut)
	return nil
}

// TestSentAgain checks that a write whose outcome is unknown, for any reason, is sent again with
// its number, and that the cluster's final response determines the result.
func TestSentAgain(t *testing.T) {
	unknown := refuses(pb.Reason_REASON_UNKNOWN_OUTCOME)
	for name, tt := range map[string]struct {
		first, then func(*fakeStream, *pb.Request) []*pb.Response
		want        []error
		unsure      bool
	}{
		"broken":      {first: breaks},
		"timed out":   {first: unknown},
		"unavailable": {first: refuses(pb.Reason_REASON_UNAVAILABLE)},
		"refused": {
			first: unknown, then: refuses(pb.Reason_REASON_KEY_NOT_FOUND),
			want: []error{ErrKeyNotFound},
		},
		"refused by the last": {
			first: unknown, then: refuses(pb.Reason_REASON_NO_SPACE),
			want: []error{ErrNoSpace}, unsure: true,
		},
		"refused by a limit": {
			first: unknown, then: refuses(pb.Reason_REASON_LIMIT_REACHED),
			want: []error{ErrLimitReached}, unsure: true,
		},
		"denied": { // the first attempt may have succeeded before the permission was revoked
			first: unknown, then: refuses(pb.Reason_REASON_PERMISSION_DENIED),
			want: []error{ErrPermissionDenied}, unsure: true,
		},
		"forgotten": {
			first: breaks, then: refuses(pb.Reason_REASON_SESSION_NOT_FOUND), unsure: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 2, Config{}, func(t *testing.T, c *Client, f *fake) {
				withSession(t, c, f)
				for kind, write := range writes(c) {
					f.set(func() { f.seen = nil })
					f.tries(tt.first, tt.then)
					if tt.then == nil {
						f.tries(tt.first)
					}
					err := write(t.Context())
					if want(t, err, tt.want...); errors.Is(err, ErrUnknownOutcome) != tt.unsure ||
						(err == nil) != (!tt.unsure && tt.want == nil) {
						t.Errorf("%s: %v", kind, err)
					}
					m, r := f.sentNumbers()
					if len(m) < 2 || r[0].Number != r[1].Number || m[0].Session != m[1].Session ||
						m[1].AcknowledgedBelow != r[1].Number {
						t.Errorf("%s: %v", kind, m)
					}
				}
			})
		})
	}
}

// TestForgotten checks that if the cluster no longer has the session of a write at its first
// attempt, the write gets a number in a new session.
func TestForgotten(t *testing.T) {
	inBubble(t, 1, Config{}, func(t *testing.T, c *Client, f *fake) {
		withSession(t, c, f)
		for kind, write := range writes(c) {
			f.set(func() { f.seen = nil })
			f.tries(refuses(pb.Reason_REASON_SESSION_NOT_FOUND))
			if err := write(t.Context()); err != nil {
				t.Errorf("%s: %v", kind, err)
			}
			m, _ := f.sentNumbers()
			if len(m) != 2 || m[0].Session.Id == m[1].Session.Id {
				t.Errorf("%s: %v", kind, m)
			}
		}
		if want := uint64(1 + len(writes(c))); f.sessions != want {
			t.Errorf("%d sessions were opened", f.sessions)
		}
	})
}

// TestSettled checks that the client acknowledges the numbers of writes that were answered or
// abandoned. A pending write delays the acknowledgment of all later ones.
func TestSettled(t *testing.T) {
	inBubble(t, 1, Config{}, func(t *testing.T, c *Client, f *fake) {
		withSession(t, c, f) // number 1
		f.tries(silent)
		ctx, cancel := context.WithCancel(t.Context())
		gaveUp := make(chan error, 1)
		go func() {
			_, err := c.Put(ctx, store.Put{Key: "slow"})
			gaveUp <- err
		}()
		synctest.Wait()
		put := func() uint64 {
			t.Helper()
			if _, err := c.Put(t.Context(), store.Put{Key: "k"}); err != nil {
				t.Error(err)
			}
			m, _ := f.sentNumbers()
			return m[len(m)-1].AcknowledgedBelow
		}
		for range 2 {
			if s := put(); s != 2 {
				t.Errorf("settled below %d while 2 is open", s)
			}
		}
		cancel()
		want(t, <-gaveUp, ErrUnknownOutcome, context.Canceled)
		if s := put(); s != 5 {
			t.Errorf("settled below %d when 2 is given up, and 3 and 4 are answered", s)
		}
	})
}

// TestSessionOpens checks that a session is opened with the first write and shared by all writes.
// Reads and grants do not wait for it. Before the session is open no write has been sent, so no
// outcome is unknown.
func TestSessionOpens(t *testing.T) {
	inBubble(t, 2, Config{}, func(t *testing.T, c *Client, f *fake) {
		closed := false
		f.set(func() {
			f.answer = func(s *fakeStream, r *pb.Request) []*pb.Response {
				if r.GetSession() == nil || closed {
					return f.obey(s, r)
				}
				return nil
			}
		})
		if _, err := c.Get(t.Context(), "k"); !errors.Is(err, ErrKeyNotFound) {
			t.Error(err)
		}
		if f.sessions+uint64(len(f.requests())) != 1 {
			t.Errorf("a session before a write: %v", f.requests())
		}
		all := writes(c)
		errs := make(chan error, len(all))
		for _, write := range all {
			go func() { errs <- write(t.Context()) }()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.Put(ctx, store.Put{Key: "k"})
		if want(t, err, context.DeadlineExceeded); errors.Is(err, ErrUnknownOutcome) {
			t.Error(err)
		}
		if _, err := c.GrantOnly(t.Context(), Grant{TTL: time.Minute}); err != nil {
			t.Error(err)
		}
		f.set(func() { closed = true; close(f.opened[0].cut) })
		for range all {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		if _, r := f.sentNumbers(); f.sessions != 1 || len(r) != len(all) {
			t.Errorf("%d sessions, %v", f.sessions, r)
		}
	})
}

// TestNumbersRunOut checks that a second session is opened if a pending write blocks the numbers of
// the first. Each message belongs to one session. Once the write is answered, the first session is
// used again.
func TestNumbersRunOut(t *testing.T) {
	inBubble(t, 1, Config{}, func(t *testing.T, c *Client, f *fake) {
		withSession(t, c, f)
		f.tries(silent)
		slow := make(chan error, 1)
		go func() {
			_, err := c.Put(t.Context(), store.Put{Key: "slow"})
			slow <- err
		}()
		synctest.Wait()
		const n, together = maxAhead + 200, 50
		errs := make(chan error, together)
		for range n / together {
			for range together {
				go func() {
					_, err := c.Put(t.Context(), store.Put{Key: "k"})
					errs <- err
				}()
			}
			for range together {
				if err := <-errs; err != nil {
					t.Fatal(err)
				}
			}
		}
		messages, requests := f.sentNumbers()
		for _, m := range messages {
			for _, r := range m.Requests {
				if r.Number != 0 && (r.Number < m.AcknowledgedBelow || r.Number-m.AcknowledgedBelow >= maxAhead) {
					t.Fatalf("number %d while %d is open", r.Number, m.AcknowledgedBelow)
				}
			}
		}
		seen := make(map[[2]uint64]bool)
		for _, m := range messages {
			for _, r := range m.Requests {
				if k := [2]uint64{m.Session.Id, r.Number}; r.Number != 0 && seen[k] {
					t.Fatalf("number %d twice", r.Number)
				} else {
					seen[k] = true
				}
			}
		}
		if f.sessions != 2 {
			t.Errorf("%d sessions", f.sessions)
		}
		f.last().say(f.obey(nil, requests[0])...)
		if err := <-slow; err != nil {
			t.Error(err)
		}
		f.set(func() { f.seen = nil })
		for range 2 {
			if _, err := c.Put(t.Context(), store.Put{Key: "k"}); err != nil {
				t.Error(err)
			}
		}
		if m, _ := f.sentNumbers(); m[1].Session.Id != 1 || m[1].AcknowledgedBelow <= maxAhead {
			t.Errorf("%v", m)
		}
	})
}
