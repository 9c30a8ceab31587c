package api

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"leasehold.dev/internal/access"
)

// TestRenewalsBounded checks that the number of pending renewals per principal is limited. A
// limited number of further renewals wait, and the rest are rejected. Other principals are not
// affected. A canceled renewal leaves nothing behind.
func TestRenewalsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRenewals()
		entered := 0
		enter := func(ctx context.Context, principal string, leases int) (err error) {
			_, err = r.Enter(ctx, principal, leases)
			return err
		}
		waits := func(ctx context.Context) {
			go func() {
				if enter(ctx, "a", maxRenewing/2) == nil {
					entered++
				}
			}()
			synctest.Wait()
		}
		soon, cancel := context.WithCancel(t.Context())
		for range 3 {
			waits(t.Context())
		}
		waits(soon)
		if entered != 2 {
			t.Errorf("%d renewals were admitted, want 2", entered)
		}
		if err := enter(t.Context(), "a", 1); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("too many: %v", err)
		}
		for _, other := range []string{"b", "", ""} {
			if err := enter(t.Context(), other, 2*maxRenewing); err != nil {
				t.Errorf("%q: %v", other, err)
			}
			r.Leave("", 2*maxRenewing)
		}
		cancel()
		r.Leave("a", maxRenewing/2)
		synctest.Wait()
		if entered != 3 {
			t.Errorf("%d renewals were admitted, want 3", entered)
		}
		r.Leave("a", maxRenewing)
		r.Leave("b", maxRenewing)
		if len(r.of) != 0 {
			t.Errorf("%d principals are kept, want none", len(r.of))
		}
	})
}

// TestLostLeasesSlowDown checks that renewing leases that a principal does not have delays only
// that principal's next renewals.
func TestLostLeasesSlowDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRenewals()
		waits := func(principal string) time.Duration {
			began := time.Now()
			if err := r.Wait(WithCaller(t.Context(), access.Caller{User: principal})); err != nil {
				t.Error(err)
			}
			return time.Since(began)
		}
		if d := waits("a"); d != 0 {
			t.Errorf("before: waited %v", d)
		}
		r.Lost("a", lostBurst)
		if d := waits("b"); d != 0 {
			t.Errorf("another principal: waited %v", d)
		}
		r.Lost("a", lostRate)
		if d := waits("a"); d != time.Second {
			t.Errorf("too many: waited %v", d)
		}
		for range lostBurst {
			if d := waits("a"); d != 0 {
				t.Fatalf("renewals of existing leases wait: %v", d)
			}
		}
		for range 10 {
			r.Lost("a", lostBurst)
		}
		if d := waits("a"); d > maxDebt {
			t.Errorf("after very many: waited %v", d)
		}
		r.Lost("a", lostBurst)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.Wait(WithCaller(ctx, access.Caller{User: "a"})); err == nil {
			t.Error("the wait was not canceled")
		}
		time.Sleep(time.Hour)
		for i := range 2 * minSweep {
			r.Lost(fmt.Sprint(i), 1)
		}
		if r.of["a"] != nil || int(r.slow.Load()) != len(r.of) {
			t.Errorf("%d principals are kept, %d with a limiter; the first: %v", len(r.of),
				r.slow.Load(), r.of["a"])
		}
	})
}
