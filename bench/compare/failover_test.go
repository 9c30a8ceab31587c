package compare

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestSample checks that quantiles of a few measurements are correct, and that the measurements
// keep their order.
func TestSample(t *testing.T) {
	var s sample
	if s.quantile(0.5) != 0 || s.max() != 0 || s.metrics("x")[0].Value != 0 {
		t.Error("an empty sample has quantiles")
	}
	for i := range 10 {
		s = append(s, time.Duration(10-i)*time.Millisecond)
	}
	want := []Metric{{"x median", 5.5, "ms"}, {"x p90", 10, "ms"}, {"x max", 10, "ms"}}
	if got := s.metrics("x"); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if s[0] != 10*time.Millisecond {
		t.Error("the sample was sorted in place")
	}
	if got := s[:9].metrics("x"); got[0].Value != 6 || s.quantile(0.2) != 3*time.Millisecond {
		t.Errorf("%v", got)
	}
}

// TestProbe runs a probe against a service that is down for 100 ms. Calls hang, calls fail, the
// last answer of the dead leader arrives, and only then is a call acknowledged in a new term. Calls
// that hang must not delay later calls.
func TestProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var calls atomic.Int32
		p := probe{every: 5 * time.Millisecond, limit: time.Second}
		p.call = func(ctx context.Context) (uint64, error) {
			n, since := calls.Add(1), time.Since(began)
			switch {
			case n == 1:
				<-ctx.Done()
				return 0, ctx.Err()
			case n == 2:
				return 3, nil // an answer in the old term
			case since < 100*time.Millisecond:
				return 0, errors.New("no leader")
			}
			time.Sleep(2 * time.Millisecond)
			return 4, nil
		}
		took, err := p.first(t.Context(), began, 3)
		if err != nil || took != 102*time.Millisecond {
			t.Errorf("%v, error %v", took, err)
		}
		if n := calls.Load(); n != 21 {
			t.Errorf("%d calls in 100 ms", n)
		}
	})
}

// TestProbeGivesUp checks that the probe returns an error if the service does not recover.
func TestProbeGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := probe{every: time.Second, limit: time.Second}
		p.call = func(context.Context) (uint64, error) { return 0, errors.New("down") }
		began := time.Now()
		_, err := firsts(t.Context(), []probe{p, p}, began, 0)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != failoverLimit {
			t.Errorf("error %v after %v", err, time.Since(began))
		}
	})
}

// TestCallers checks that exactly the calls that were in flight at the kill are counted, with their
// full durations.
func TestCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &callers{stopping: make(chan struct{})}
		n := 0
		c.wg.Go(func() {
			c.loop(t.Context(), func(context.Context) (uint64, error) {
				if n++; n == 3 {
					time.Sleep(7 * time.Second)
					return 0, errors.New("timed out")
				}
				time.Sleep(5 * time.Millisecond)
				return 1, nil
			})
		})
		time.Sleep(20 * time.Millisecond) // during the third call
		c.mark(time.Now())
		time.Sleep(8 * time.Second)
		if got := c.stop(); !slices.Equal(got, sample{7 * time.Second}) || n < 4 {
			t.Errorf("%v after %d calls", got, n)
		}
	})
}

// TestKeptLease checks that a lease counts as lost if the client closes its channel, and does not
// if the keeper releases the lease.
func TestKeptLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, lost := range []bool{true, false} {
			ctx, cancel := context.WithCancel(t.Context())
			renewed := make(chan *clientv3.LeaseKeepAliveResponse)
			go func() {
				for range 3 {
					time.Sleep(2 * time.Second)
					renewed <- nil
				}
				if !lost {
					cancel()
				}
				close(renewed)
			}()
			var l keptLease
			l.follow(ctx, renewed)
			cancel()
			if l.lost != lost || l.longest != 2*time.Second {
				t.Errorf("%+v, want lost: %v", l, lost)
			}
		}
	})
}
