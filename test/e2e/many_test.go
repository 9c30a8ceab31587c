package e2e

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/test/harness"
	"leasehold.dev/test/tier"
)

// TestManyLeasesOfOneClient: one client has very many leases on one connection,
// renews them all over one stream, and dies. The others are served while they
// all end, and none is left.
func TestManyLeasesOfOneClient(t *testing.T) {
	tier.Campaign(t)
	leases, ttl := 20_000, 5*time.Second
	if *longFlag {
		leases, ttl = 200_000, 30*time.Second
	}
	m := startMember(t)
	holder, c := m.client(), m.client()
	for !holdMany(t, holder, c, leases, ttl) {
		// On a machine that needs longer for it than they live, there are fewer.
		if leases /= 2; leases < 500 {
			t.Skipf("the machine is too slow for %d leases of %v", leases, ttl)
		}
		harness.Eventually(t, "the leases of before end", func() error {
			if n := count(t, c); n > 0 {
				return fmt.Errorf("%d leases", n)
			}
			return nil
		})
	}
	died := time.Now()
	if err := holder.Close(); err != nil {
		t.Fatal(err)
	}

	puts := putWhile(t, c, func() bool { return count(t, c) > 0 })
	took := time.Since(died)
	t.Logf("all ended after %v; meanwhile %d puts, the slowest %v",
		took.Round(time.Millisecond), puts.n, puts.slowest.Round(time.Millisecond))
	if puts.slowest > patience/12 {
		t.Errorf("a put took %v", puts.slowest)
	}
	if bound := ttl + ttl/2 + patience/2; took > bound {
		t.Errorf("the leases took %v to end, more than %v", took, bound)
	}
}

// holdMany grants leases and renews them all twice. It reports whether that was done
// before the first of them could end.
func holdMany(t *testing.T, holder, c *clientv3.Client, leases int, ttl time.Duration) bool {
	t.Helper()
	first := time.Now()
	ids := grantMany(t, holder, leases, ttl)
	t.Logf("%d grants took %v", leases, time.Since(first).Round(time.Millisecond))
	if time.Since(first) >= ttl {
		return false
	}
	stream, err := pb.NewLeaseClient(holder.ActiveConnection()).LeaseKeepAlive(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		began := time.Now()
		ended := renewAll(t, stream, ids, ttl)
		t.Logf("%d renewals took %v", leases, time.Since(began).Round(time.Millisecond))
		if late := time.Since(first) >= ttl; ended > 0 && !late {
			t.Fatalf("%d leases ended before %v", ended, ttl)
		} else if late {
			return false
		}
	}
	got := count(t, c)
	if late := time.Since(first) >= ttl; got != leases && !late {
		t.Fatalf("%d leases, want %d", got, leases)
	}
	return got == leases
}

// grantMany grants leases over one connection, and gives up when the first could end.
func grantMany(t *testing.T, c *clientv3.Client, n int, ttl time.Duration) []int64 {
	t.Helper()
	ids := make([]int64, n)
	var next atomic.Int64
	var wg sync.WaitGroup
	first := time.Now()
	for range 256 {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				if time.Since(first) >= ttl {
					return
				}
				r, err := c.Grant(t.Context(), int64(ttl.Seconds()))
				if err != nil {
					t.Error(err)
					return
				}
				ids[i] = int64(r.ID)
			}
		})
	}
	wg.Wait()
	return ids
}

// renewAll renews every lease once, without waiting for each answer, and returns how
// many had ended.
func renewAll(
	t *testing.T, stream pb.Lease_LeaseKeepAliveClient, ids []int64, ttl time.Duration,
) (ended int) {
	t.Helper()
	sent := make(chan error, 1)
	go func() {
		for _, id := range ids {
			if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: id}); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	missing := make(map[int64]bool, len(ids))
	for _, id := range ids {
		missing[id] = true
	}
	for range ids {
		r, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		if r.TTL != int64(ttl.Seconds()) && r.TTL > 0 || !missing[r.ID] {
			t.Fatalf("renewal of %x: %d s; awaited: %v", r.ID, r.TTL, missing[r.ID])
		}
		if r.TTL <= 0 {
			ended++
		}
		delete(missing, r.ID)
	}
	if err := receive(t, "the last request", sent); err != nil {
		t.Fatal(err)
	}
	return ended
}

func count(t *testing.T, c *clientv3.Client) int {
	t.Helper()
	r, err := c.Leases(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return len(r.Leases)
}

// traffic is what a client saw of the server.
type traffic struct {
	n       int
	slowest time.Duration
}

// putWhile puts, one after the other, as long as busy says so; busy is asked a few
// times a second.
func putWhile(t *testing.T, c *clientv3.Client, busy func() bool) traffic {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	var seen traffic
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			began := time.Now()
			_, err := c.Put(ctx, fmt.Sprint("meanwhile/", seen.n%100), "v")
			seen.slowest = max(seen.slowest, time.Since(began)) // one that never ends, too
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				t.Error(err)
				return
			}
			seen.n++
		}
	})
	end := time.After(4 * patience)
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for busy() {
		select {
		case <-tick.C:
		case <-end:
			t.Error("it does not end")
			busy = func() bool { return false }
		}
	}
	stop()
	wg.Wait()
	return seen
}
