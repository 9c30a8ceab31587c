package cache_test

import (
	"testing"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/cache"
	"leasehold.dev/client/store"
	"leasehold.dev/test/rig"
)

// TestClosedCacheFreed checks that a cache is freed once its client is closed, even if it has a
// long TTL, and even if the cache itself was never closed.
func TestClosedCacheFreed(t *testing.T) {
	cl := newCluster(t, 1)
	for _, first := range []bool{true, false} {
		var freed func()
		func() {
			c := must[*client.Client](t)(client.New(client.Config{Endpoints: cl.endpoints()}))
			k := must[*cache.Cache](t)(cache.Open(timeout(t), c,
				[]store.KeyRange{store.Prefix("c/")}, cache.Options{TTL: 10 * time.Minute}))
			freed = rig.Freed(k)
			if first {
				if err := k.Close(timeout(t)); err != nil {
					t.Error(err)
				}
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}()
		if freed(); t.Failed() {
			t.Fatal("closed first:", first)
		}
	}
}
