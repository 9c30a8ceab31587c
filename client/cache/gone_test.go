package cache_test

import (
	"runtime"
	"testing"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/cache"
	"leasehold.dev/client/store"
)

// TestClosedCacheGoes: a cache takes no memory once its client is closed, however long its TTL
// is, and whether it was closed first.
func TestClosedCacheGoes(t *testing.T) {
	t.Parallel()
	cl := newCluster(t, 1)
	for _, first := range []bool{true, false} {
		gone := make(chan struct{})
		func() {
			c := must[*client.Client](t)(client.New(client.Config{Endpoints: cl.endpoints()}))
			k := must[*cache.Cache](t)(cache.Open(ask(t), c,
				[]store.KeyRange{store.Prefix("c/")}, cache.Options{TTL: 10 * time.Minute}))
			runtime.AddCleanup(k, func(gone chan struct{}) { close(gone) }, gone)
			if first {
				if err := k.Close(ask(t)); err != nil {
					t.Error(err)
				}
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}()
		for out, in := time.After(20*time.Second), true; in; runtime.Gosched() {
			runtime.GC()
			select {
			case <-gone:
				in = false
			case <-out:
				t.Error("it is still in memory; closed first:", first)
				in = false
			default:
			}
		}
	}
}
