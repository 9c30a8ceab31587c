package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/store"
)

// TestReasonsComplete checks that every reason in the API has a corresponding error.
func TestReasonsComplete(t *testing.T) {
	for n, name := range pb.Reason_name {
		if _, ok := reasons[pb.Reason(n)]; ok == (n == 0) {
			t.Errorf("%s: has an error: %v", name, ok)
		}
	}
	seen := make(map[error]pb.Reason)
	for r, err := range reasons {
		if other, ok := seen[err]; ok {
			t.Errorf("%v and %v have one error", r, other)
		}
		seen[err] = r
	}
	want(t, errorOf(&pb.Error{Reason: 1000}), ErrUnknownOutcome)
}

// TestTaken checks that the error names the holder of a name or an ID.
func TestTaken(t *testing.T) {
	for r, sentinel := range map[pb.Reason]error{
		pb.Reason_REASON_NAME_TAKEN: ErrNameTaken, pb.Reason_REASON_ID_TAKEN: ErrIDTaken,
	} {
		err := fmt.Errorf("wrapped: %w", errorOf(&pb.Error{
			Reason: r, Holder: &pb.Lease{Id: 7, Token: 9, Owner: "me"},
		}))
		want(t, err, sentinel)
		var taken *TakenError
		if !errors.As(err, &taken) || taken.Holder.ID != 7 || taken.Holder.Token != 9 ||
			taken.Holder.Owner != "me" ||
			!strings.Contains(err.Error(), "lease 0000000000000007 of") { // formatted as in etcdctl
			t.Errorf("%v: holder %+v", err, taken)
		}
	}
	err := errorOf(&pb.Error{Reason: pb.Reason_REASON_NAME_TAKEN, Holder: &pb.Lease{
		Id: 7, Token: 9, LockDelayMs: 1500, Delayed: true,
	}})
	if !strings.Contains(err.Error(), "lock delay of 1.5s") || strings.Contains(err.Error(), `""`) {
		t.Errorf("delayed: %v", err)
	}
}

func TestEndpoints(t *testing.T) {
	secure := &tls.Config{MinVersion: tls.VersionTLS12}
	for _, tt := range []struct {
		text, target string
		tls, isTLS   bool
	}{
		{"h:1", "passthrough:///h:1", false, false},
		{"h:1", "passthrough:///h:1", true, true},
		{"http://h:1", "passthrough:///h:1", true, false},
		{"https://h:1", "passthrough:///h:1", true, true},
		{"https://h:1", "", false, false},
		{"HTTP://h:1/", "passthrough:///h:1", true, false},
		{"unixs:/tmp/s", "unix:/tmp/s", true, true},
		{"unixs:/tmp/s", "", false, false},
		{"unix:/tmp/s", "unix:/tmp/s", false, false},
		{"unix:///tmp/s", "unix:/tmp/s", true, true},
		{"ftp://h:1", "", false, false},
		{"http://", "", false, false},
		{"", "", false, false},
	} {
		var c *tls.Config
		if tt.tls {
			c = secure
		}
		e, err := parseEndpoint(tt.text, &Config{TLS: c})
		if (err == nil) != (tt.target != "") {
			t.Errorf("%q: %v", tt.text, err)
			continue
		}
		if err == nil && (e.target != tt.target || (e.tls != nil) != tt.isTLS) {
			t.Errorf("%q: %+v", tt.text, e)
		}
	}
	for _, c := range []Config{
		{},
		{Endpoints: []string{"a:1"}, Drift: 1},
		{Endpoints: []string{"a:1"}, RenewAfter: 0.6},
		{Endpoints: []string{"a:1"}, RenewAfter: -0.1},
		{Endpoints: []string{"a:1"}, RenewAfter: 0.009},
		{Endpoints: []string{"a:1"}, Drift: math.NaN()},
		{Endpoints: []string{"a:1"}, Silence: -1},
		{Endpoints: []string{" ", ""}},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("a client of %+v", c)
		}
	}
}

// TestCancel checks that a call whose context ends cancels its request at the member. A write that
// was sent may have taken effect; a read, or a request that was never sent, has not.
func TestCancel(t *testing.T) {
	inBubble(t, 1, Config{}, func(t *testing.T, c *Client, f *fake) {
		withSession(t, c, f)
		f.set(func() { f.answer = silent })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.Put(ctx, store.Put{Key: "k"})
		want(t, err, context.DeadlineExceeded, ErrUnknownOutcome)
		ctx, cancel = context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, err = c.Range(ctx, store.Range{Key: "k"})
		want(t, err, context.Canceled)
		if errors.Is(err, ErrUnknownOutcome) {
			t.Errorf("a read: %v", err)
		}
		synctest.Wait()
		r := f.requests()
		if len(r) != 4 || r[0].TimeoutMs != 1000 || r[1].GetCancel() != r[0].Id ||
			r[2].TimeoutMs != 0 || r[3].GetCancel() != r[2].Id {
			t.Errorf("requests %v", r)
		}
		_, err = c.Put(ctx, store.Put{Key: "k"})
		if want(t, err, context.Canceled); errors.Is(err, ErrUnknownOutcome) {
			t.Errorf("never sent: %v", err)
		}
	})
}

// TestNoMember checks that a call waits for a member until its context ends, and that the error
// then explains why no member was available.
func TestNoMember(t *testing.T) {
	inBubble(t, 2, Config{}, func(t *testing.T, c *Client, f *fake) {
		f.set(func() {
			f.down["a"], f.down["b"] = true, true
			close(f.opened[0].cut)
		})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := c.Put(ctx, store.Put{Key: "k"})
		want(t, err, context.DeadlineExceeded, ErrUnavailable)
		if errors.Is(err, ErrUnknownOutcome) || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("error %v", err)
		}
		time.AfterFunc(time.Second, func() { f.set(func() { delete(f.down, "b") }) })
		if _, err := c.Put(t.Context(), store.Put{Key: "k"}); err != nil {
			t.Error(err)
		}
	})
}

// TestNotSent checks that a request that is too large or not valid UTF-8 is not sent, because it
// would end the stream for every caller.
func TestNotSent(t *testing.T) {
	inBubble(t, 1, Config{}, func(t *testing.T, c *Client, f *fake) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		large := string(make([]byte, 2<<20))
		for what, ask := range map[string]func() error{
			"a value": func() error {
				_, err := c.Put(ctx, store.Put{Key: "k", Value: []byte(large)})
				return err
			},
			"a watch": func() error { _, err := c.Watch(ctx, store.Watch{Key: large}); return err },
			"a name":  func() error { _, err := c.Grant(ctx, Grant{Name: "\xff"}); return err },
			"a name inside": func() error {
				_, err := c.Txn(ctx, store.Txn{Then: []store.Op{Grant{Owner: "\xff"}}})
				return err
			},
			"a list": func() error {
				for _, err := range c.List(ctx, leases.Filter{NamePrefix: "\xff"}) {
					return err
				}
				return nil
			},
			"events": func() error {
				_, err := c.LeaseEvents(ctx, leases.Watch{Owner: "\xff"})
				return err
			},
		} {
			err := ask()
			if want(t, err, ErrInvalid); len(f.requests()) > 0 || f.streams() > 1 {
				t.Fatalf("%s was sent: %d streams", what, f.streams())
			}
		}
	})
}

// TestNoQuorum checks that a client cycles through the members at increasing intervals while all of
// them refuse every request (T26), and that it continues once a member serves requests again.
func TestNoQuorum(t *testing.T) {
	inBubble(t, 3, Config{}, func(t *testing.T, c *Client, f *fake) {
		f.set(func() {
			f.answer = func(_ *fakeStream, r *pb.Request) []*pb.Response {
				return refuse(r, pb.Reason_REASON_UNAVAILABLE)
			}
		})
		const outage = time.Minute
		time.AfterFunc(outage, func() { f.set(func() { f.answer = f.obey }) })
		start := time.Now()
		if _, err := c.Put(t.Context(), store.Put{Key: "k"}); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took > outage+2*time.Second {
			t.Errorf("it took %v", took)
		}
		if n := len(f.opened); n > 150 {
			t.Errorf("%d streams in a minute", n)
		}
	})
}

// TestLeavesSilentMember checks that a client leaves a stopped member. Reads and writes immediately
// go to the next member. Pending grants are answered once the old member responds.
func TestLeavesSilentMember(t *testing.T) {
	inBubble(t, 2, Config{}, func(t *testing.T, c *Client, f *fake) {
		withSession(t, c, f)
		stuck := f.last()
		f.set(func() { f.frozen[stuck.name] = true })
		put, grant := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := c.Put(t.Context(), store.Put{Key: "k"})
			put <- err
		}()
		go func() {
			_, err := c.GrantOnly(t.Context(), Grant{TTL: time.Minute})
			grant <- err
		}()
		start := time.Now()
		_, err := c.Range(t.Context(), store.Range{Key: "k"})
		if err = errors.Join(err, <-put); err != nil || time.Since(start) > 5*time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		synctest.Wait()
		for _, r := range f.requests() {
			if r.GetGrant() != nil {
				stuck.say(f.obey(stuck, r)...)
			}
		}
		if err := <-grant; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if stuck.ctx.Err() == nil {
			t.Error("the stream that was left is still open, and nothing is awaited there")
		}
	})
}

// TestClose checks that Close ends all pending calls with ErrClosed.
func TestClose(t *testing.T) {
	inBubble(t, 1, Config{}, func(t *testing.T, c *Client, f *fake) {
		l, err := c.Grant(t.Context(), Grant{TTL: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		w, err := c.Watch(t.Context(), store.Watch{Key: "k"})
		if err != nil {
			t.Fatal(err)
		}
		withSession(t, c, f)
		f.set(func() { f.answer = silent })
		errs := make(chan error, 3)
		go func() {
			_, err := c.Put(t.Context(), store.Put{Key: "k"})
			errs <- errors.Join(err, isNot(err, ErrUnknownOutcome))
		}()
		go func() {
			_, err := c.Get(t.Context(), "k")
			errs <- err
		}()
		go func() {
			_, err := w.Next(t.Context())
			errs <- err
		}()
		synctest.Wait()
		_ = c.Close()
		for range 3 {
			want(t, <-errs, ErrClosed)
		}
		want(t, context.Cause(l.Context()), ErrClosed)
		want(t, l.Err(), ErrClosed)
		_, err = c.Grant(t.Context(), Grant{TTL: time.Minute})
		want(t, err, ErrClosed)
		_, err = c.Watch(t.Context(), store.Watch{Key: "k"})
		want(t, err, ErrClosed)
	})
}

// isNot returns nil if errors.Is(err, that), and otherwise an error that wraps both.
func isNot(err, that error) error {
	if errors.Is(err, that) {
		return nil
	}
	return fmt.Errorf("%w is not %w", err, that)
}

// TestManyCalls checks that no more calls are in flight than the server accepts, and that all calls
// are answered.
func TestManyCalls(t *testing.T) {
	inBubble(t, 1, Config{}, func(t *testing.T, c *Client, f *fake) {
		withSession(t, c, f)
		f.set(func() { f.answer = silent })
		const n = maxCalls + 500
		errs := make(chan error, n)
		for range n {
			go func() {
				_, err := c.Put(t.Context(), store.Put{Key: "k"})
				errs <- err
			}()
		}
		synctest.Wait()
		r := f.requests()
		if len(r) != maxCalls {
			t.Errorf("%d requests are open", len(r))
		}
		f.set(func() { f.answer = f.obey })
		for _, r := range r {
			f.last().say(f.obey(nil, r)...)
			synctest.Wait()
		}
		for range n {
			if err := <-errs; err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestForeignLate checks the outcome of pending requests if a server works at first and later
// reports that it does not support the API. Those requests may have taken effect.
func TestForeignLate(t *testing.T) {
	inBubble(t, 1, Config{}, func(t *testing.T, c *Client, f *fake) {
		withSession(t, c, f)
		f.set(func() {
			f.answer = func(s *fakeStream, _ *pb.Request) []*pb.Response {
				f.foreign[s.name] = true
				close(s.cut)
				return nil
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := c.Put(ctx, store.Put{Key: "k"})
		want(t, err, ErrUnknownOutcome, ErrNotLeasehold)
	})
}
