package api

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"golang.org/x/time/rate"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/access"
)

// limitsOf returns a limiter that applies the given rate to alice and bob, and a function that
// changes alice's limit.
func limitsOf(t *testing.T, most int64) (*RateLimiter, func(most int64)) {
	t.Helper()
	s := (*access.State)(nil)
	do := func(next *access.State, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		s = next
	}
	for _, name := range []string{"root", "alice", "bob"} {
		do(s.AddUser(name, nil, true))
	}
	do(s.GrantRole("root", "root"))
	do(s.Enable())
	set := func(most int64) {
		do(s.SetLimits(access.Holder{Kind: access.OfUser, Name: "alice"},
			[]access.LimitChange{{What: access.Rate, Most: most}}))
	}
	do(s.SetLimits(access.Holder{}, []access.LimitChange{{What: access.Rate, Most: most}}))
	return NewRateLimiter(func() *access.State { return s }, 9), set
}

func callOf(user string) context.Context {
	return WithCaller(context.Background(), access.Caller{User: user, Revision: 99})
}

// TestUnlimited checks that there are no limits without access control, and that root and anonymous
// callers are never limited.
func TestUnlimited(t *testing.T) {
	off := NewRateLimiter(func() *access.State { return nil }, 9)
	on, _ := limitsOf(t, 1)
	for range 3 {
		for name, err := range map[string]error{
			"anonymous": on.Admit(callOf("")), "root": on.Admit(callOf("root")),
			"no access control": off.Admit(callOf("alice")),
		} {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if n := len(off.rates) + len(on.rates); n != 0 {
		t.Errorf("%d principals are kept, want none", n)
	}
}

// TestRate checks that a principal can make as many requests per second as its limit allows. A
// rejected request gets the retry delay. Other principals are not affected.
func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, set := limitsOf(t, 10)
		admitted := func(user string, tries int) (n int, last error) {
			for range tries {
				if err := l.Admit(callOf(user)); err == nil {
					n++
				} else {
					last = err
				}
			}
			return n, last
		}
		n, err := admitted("alice", 50)
		often := new(RateError)
		if n != 10 || !errors.As(err, &often) || often.Retry != 100 {
			t.Fatalf("%d admitted at once, then %v, retry after %d ms", n, err, often.Retry)
		}
		if n, _ := admitted("bob", 5); n != 5 {
			t.Fatalf("%d of bob's 5 requests were admitted", n)
		}
		time.Sleep(100 * time.Millisecond)
		if n, _ := admitted("alice", 5); n != 1 {
			t.Fatalf("%d admitted after a tenth of a second", n)
		}
		time.Sleep(time.Minute)
		if n, _ := admitted("alice", 50); n != 10 {
			t.Fatalf("%d admitted after a minute", n)
		}
		set(20)
		admitted("alice", 1)
		time.Sleep(time.Second)
		if n, _ := admitted("alice", 50); n != 20 {
			t.Fatalf("%d admitted with a higher limit", n)
		}
		set(access.NoLimit)
		if n, _ := admitted("alice", 500); n != 500 {
			t.Fatalf("%d admitted without a limit", n)
		}
	})
}

// TestRateSweep checks that idle principals are dropped from memory. A principal that has just used
// up its burst is kept, because otherwise it would get another burst.
func TestRateSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := limitsOf(t, 1)
		others := func() {
			for i := range 3 * minSweep {
				_ = l.Admit(callOf(fmt.Sprint("corp:", i)))
			}
		}
		if err := l.Admit(callOf("alice")); err != nil {
			t.Fatal(err)
		}
		others()
		if l.Admit(callOf("alice")) == nil {
			t.Error("the second request was not refused")
		}
		time.Sleep(10 * time.Second)
		for i := range l.sweep + 1 {
			_ = l.Admit(callOf(fmt.Sprint("others:", i)))
		}
		if _, known := l.rates["alice"]; known || len(l.rates) > l.sweep {
			t.Errorf("alice is kept: %v; %d principals in all", known, len(l.rates))
		}
	})
}

// TestLimitErrors checks that each API reports a limit in a way that its clients understand.
func TestLimitErrors(t *testing.T) {
	often := &RateError{
		LimitError: access.LimitError{Principal: "alice", What: access.Rate, Limit: 10}, Retry: 70,
	}
	if got := Error(often); status.Code(got) != codes.ResourceExhausted ||
		rpctypes.ErrorDesc(got) != rpctypes.ErrorDesc(rpctypes.ErrGRPCRequestTooManyRequests) {
		t.Errorf("etcd API: %v", got)
	}
	leases := &access.LimitError{
		Principal: "alice", What: access.Leases, Limit: 2, Used: 2, Asked: 1,
	}
	for _, err := range []error{often, leases} {
		if r := Reason(err); r != pb.Reason_REASON_LIMIT_REACHED {
			t.Errorf("reason of %v: %v", err, r)
		}
		got := NativeError(err, Reason(err))
		s, retries := status.Convert(got), false
		for _, d := range s.Details() {
			if r, ok := d.(*errdetails.RetryInfo); ok {
				retries = r.RetryDelay.AsDuration() == 70*time.Millisecond
			}
		}
		if s.Code() != codes.ResourceExhausted || retries != (err == error(often)) {
			t.Errorf("%v: code %v, retries %v", err, s.Code(), retries)
		}
	}
	const text = "limit on leases reached: alice may have 2, has 2 and requested 1 more"
	s := status.Convert(Error(leases))
	if s.Code() != codes.ResourceExhausted || s.Message() != text {
		t.Errorf("%v", s)
	}
	m := ErrorMessage(leases, Reason(leases)).Metadata
	if m["resource"] != "leases" || m["limit"] != "2" || m["used"] != "2" {
		t.Errorf("metadata %v", m)
	}
}

// TestRefusalsBounded checks that only a limited number of principals get separate refusal counts,
// and that counts never decrease.
func TestRefusalsBounded(t *testing.T) {
	l := NewRateLimiter(func() *access.State { return nil }, 2)
	for i := range 100 {
		for range i + 1 {
			l.Refused(&access.LimitError{Principal: fmt.Sprint("u", i), What: access.Leases})
		}
	}
	l.Refused(&access.LimitError{Principal: "u1", What: access.Bytes})
	l.Refused(&access.LimitError{Principal: "u9", What: access.Bytes})
	leases, bytes := l.Refusals(access.Leases), l.Refusals(access.Bytes)
	if want := (map[string]uint64{"u0": 1, "u1": 2, "": 5047}); !maps.Equal(leases, want) {
		t.Errorf("leases %v, want %v", leases, want)
	}
	if want := (map[string]uint64{"u1": 1, "": 1}); !maps.Equal(bytes, want) {
		t.Errorf("bytes %v, want %v", bytes, want)
	}
}

// TestLargeRateChanges checks that a changed limit takes effect immediately, no matter how large it
// is.
func TestLargeRateChanges(t *testing.T) {
	l := NewRateLimiter(func() *access.State { return nil }, 0)
	for _, most := range []int64{1 << 31, 1 << 32, 7} {
		if got := l.rateLocked("alice", most).Limit(); got != rate.Limit(most) {
			t.Errorf("limit %v, want %d", got, most)
		}
	}
}
