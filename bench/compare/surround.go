package compare

import (
	"context"
	"fmt"
	"sync"

	"leasehold.dev/client/store"
	"leasehold.dev/internal/load"
)

const (
	// surroundSessions is how many clients have a cache of all keys that are to end, and how many
	// watch all of them; aloneWatched is how many keys have one besides who waits for just that key.
	surroundSessions = 8
	aloneWatched     = 1000
	// surroundTime is what there is for that, in seconds.
	surroundTime = 20
)

func drainAmongOthers() Workload {
	return Workload{
		Name: "drain-among-others/20000", run: drain(20_000, true), Once: true,
		Sessions: surroundSessions, Granting: true,
		Doc: "20,000 end of which 8 caches and 8 watchers have all, and 1,000 watchers one each",
	}
}

// surround has watchers of n keys that are to end, and caches if the server has such, until ctx
// ends.
func (e *Env) surround(ctx context.Context, all *sync.WaitGroup, n int) error {
	keys := store.Prefix(string(ending))
	if native(e.Sessions[0]) != nil {
		if err := e.cacheAll(ctx, all, keys, n); err != nil {
			return err
		}
	}
	return load.Spread(ctx, 64, surroundSessions+aloneWatched,
		func(_ context.Context, _, i int) error {
			key, end := []byte(keys.Key), []byte(keys.End)
			if i >= surroundSessions {
				key, end = endingKey(i-surroundSessions), nil
			}
			stream, err := load.OpenWatch(ctx, e.Client.Watch(i), key, end)
			if err != nil {
				return err
			}
			all.Go(func() {
				for err := error(nil); err == nil; {
					_, err = stream.Recv()
				}
			})
			return nil
		})
}

// cacheAll has caches of n keys until ctx ends.
func (e *Env) cacheAll(
	ctx context.Context, all *sync.WaitGroup, keys store.KeyRange, n int,
) error {
	caches, err := e.openCaches(ctx, surroundSessions, keys, 0)
	if err != nil {
		return err
	}
	all.Go(func() {
		<-ctx.Done()
		_ = closeCaches(context.WithoutCancel(ctx), caches) // what was measured is there
	})
	for _, c := range caches {
		if _, err := c.Range(ctx, keys.Key, keys.End); err != nil {
			return err
		}
		if has := c.Stats().Entries; has != n {
			return fmt.Errorf("bench: a cache has %d keys of %d", has, n)
		}
	}
	return nil
}
