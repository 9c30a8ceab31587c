package cache_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/cache"
	"leasehold.dev/client/internal/cachelink"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/store"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/virtual"
)

// TestMaxCacheTTL checks that a cache with the default TTL gets no more than the server allows. If
// a program requests more, the error contains the limit.
func TestMaxCacheTTL(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		for _, c := range []struct{ most, usual time.Duration }{
			{2 * time.Second, 2 * time.Second}, {time.Minute, 5 * time.Second},
		} {
			cfg := inprocess.Config(inprocess.Dir(t), "m")
			cfg.Lease.MaxCacheTTL = c.most
			m := inprocess.Start(t, cfg)
			m.Await()
			to := connect(t, m.Endpoint())
			keys := []store.KeyRange{store.Prefix("h/")}
			usual := must[*cache.Cache](t)(cache.Open(timeout(t), to, keys, cache.Options{}))
			if ttl := usual.Lease().Info().TTL; ttl != c.usual {
				t.Errorf("maximum %v: TTL is %v, want %v", c.most, ttl, c.usual)
			}
			if err := usual.Close(timeout(t)); err != nil {
				t.Error(err)
			}
			_, err := cache.Open(timeout(t), to, keys, cache.Options{TTL: c.most + time.Second})
			want := fmt.Sprintf("at most %d ms", c.most.Milliseconds())
			if !errors.Is(err, client.ErrInvalid) || !strings.Contains(fmt.Sprint(err), want) ||
				!strings.Contains(fmt.Sprint(err), "--lease-max-cache-ttl") {
				t.Errorf("TTL above %v: %v", c.most, err)
			}
		}
	})
}

// TestTooManyHolds checks that an owner at its limit of holds gets an error immediately, however it
// opens another cache. Other owners are unaffected, and closing a cache frees its holds.
func TestTooManyHolds(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		cl := newCluster(t, 1)
		c := connect(t, cl.endpoints()...)
		var left []store.KeyRange
		var holds []keyrange.Range
		for i := range 64 {
			left = append(left, store.Prefix(fmt.Sprintf("h/%d/", i)))
			holds = append(holds, keyrange.Range(left[i]))
		}
		grant := client.Grant{TTL: 10 * time.Minute, Owner: "greedy"}.ForCache(
			cachelink.Internal{}, holds)
		first := must[*client.Lease](t)(c.Grant(timeout(t), grant))
		for range 10_000/64 - 1 {
			_ = must[*client.Lease](t)(c.Grant(timeout(t), grant))
		}
		_, err := cache.Open(timeout(t), c, left, cache.Options{Owner: "greedy"})
		if !errors.Is(err, client.ErrTooManyHolds) {
			t.Errorf("at the limit: %v, want ErrTooManyHolds", err)
		}
		open(t, c, "h/", cache.Options{Owner: "another"})
		open(t, c, "h/", cache.Options{})
		if err := c.Revoke(timeout(t), leases.Ref{ID: first.ID()}); err != nil {
			t.Fatal(err)
		}
		mine := must[*cache.Cache](t)(cache.Open(timeout(t), c, left, cache.Options{Owner: "greedy"}))
		if err := mine.Close(timeout(t)); err != nil {
			t.Error(err)
		}
	})
}

// TestRevokeOwnCache checks that a program that revokes or closes the lease of its own cache does
// not have to wait, and that no later write waits for the cache.
func TestRevokeOwnCache(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		cl := newCluster(t, 1)
		own, other := connect(t, cl.endpoints()...), connect(t, cl.endpoints()...)
		for name, end := range map[string]func(l *client.Lease) error{
			"revoked": func(l *client.Lease) error { return own.Revoke(timeout(t), l.Ref()) },
			"by its ID": func(l *client.Lease) error {
				return own.Revoke(timeout(t), leases.Ref{ID: l.ID()})
			},
			"closed": func(l *client.Lease) error { l.Close(); return nil },
		} {
			virtual.Step(t, name, func(t *testing.T) {
				c := open(t, own, "r/", cache.Options{TTL: 10 * time.Minute})
				put(t, other, "r/a", "1")
				keeps(t, c, "r/a")
				if err := end(c.Lease()); err != nil {
					t.Error(err)
				}
				put(t, other, "r/a", "2")
				if got := value(t, c, "r/a"); got != "2" {
					t.Errorf("read %q, want 2", got)
				}
			})
		}
	})
}
