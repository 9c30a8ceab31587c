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

// The renewals of a principal that have no answer are bounded. Some more wait for these, further ones
// are refused, and renewals of other principals neither wait nor count. A renewal that gives up
// leaves nothing behind.
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
			t.Errorf("%d renewals have entered, want 2", entered)
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
			t.Errorf("%d renewals have entered when there was room for one more", entered)
		}
		r.Leave("a", maxRenewing)
		r.Leave("b", maxRenewing)
		if len(r.of) != 0 {
			t.Errorf("%d principals are remembered", len(r.of))
		}
	})
}

// Renewals of leases that a principal does not have make its next ones wait, and nobody else's.
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
			t.Errorf("before: %v", d)
		}
		r.Lost("a", lostBurst)
		if d := waits("b"); d != 0 {
			t.Errorf("another principal: %v", d)
		}
		r.Lost("a", lostRate)
		if d := waits("a"); d != time.Second {
			t.Errorf("too many: %v", d)
		}
		for range lostBurst {
			if d := waits("a"); d != 0 {
				t.Fatalf("renewals of leases that exist wait: %v", d)
			}
		}
		for range 10 {
			r.Lost("a", lostBurst)
		}
		if d := waits("a"); d > maxDebt {
			t.Errorf("after very many: %v", d)
		}
		r.Lost("a", lostBurst)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.Wait(WithCaller(ctx, access.Caller{User: "a"})); err == nil {
			t.Error("it did not wait until the end")
		}
		time.Sleep(time.Hour)
		for i := range 2 * minSweep {
			r.Lost(fmt.Sprint(i), 1)
		}
		if r.of["a"] != nil || int(r.slow.Load()) != len(r.of) {
			t.Errorf("%d principals are remembered, %d have a rate; the first one: %v", len(r.of),
				r.slow.Load(), r.of["a"])
		}
	})
}
