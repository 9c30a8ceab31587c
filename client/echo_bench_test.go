package client_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/lock"
	"leasehold.dev/client/store"
)

// BenchmarkEcho is what a request takes of the client alone, with 64 callers who each ask again
// as soon as they are answered, all of them together, and with one. The callers have a context that
// can end, as those of programs.
func BenchmarkEcho(b *testing.B) {
	c, together, messages := client.StartEcho(b)
	ctx, cancel := context.WithTimeout(b.Context(), time.Hour)
	defer cancel()
	value := make([]byte, 128)
	for _, op := range []struct {
		name string
		do   func(int) error
	}{
		{"put", func(int) error {
			_, err := c.Put(ctx, store.Put{Key: "bench/1", Value: value})
			return err
		}},
		{"get", func(int) error {
			_, err := c.Get(ctx, "bench/1")
			return err
		}},
		{"txn", func(int) error {
			_, err := c.Txn(ctx, store.Txn{
				If:   []store.Compare{store.Key("bench/1").Version(store.Equal, 1)},
				Then: []store.Op{store.Delete{Key: "bench/1"}},
			})
			return err
		}},
		{"grant", func(int) error {
			_, err := c.GrantOnly(ctx, client.Grant{TTL: time.Hour})
			return err
		}},
		{"lock", lockCycle(b, ctx, c)},
	} {
		for _, callers := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/callers=%d", op.name, callers), func(b *testing.B) {
				b.ReportAllocs()
				together(callers)
				before := messages()
				var all sync.WaitGroup
				for i := range callers {
					all.Go(func() {
						for n := 0; n < b.N; n += callers {
							if err := op.do(i); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				all.Wait()
				b.ReportMetric(float64(messages()-before)/float64(b.N), "messages/op")
				together(1)
			})
		}
	}
}

// lockCycle returns what locks and unlocks a lock of each caller's own.
func lockCycle(b *testing.B, ctx context.Context, c *client.Client) func(int) error {
	l, err := c.Grant(ctx, client.Grant{TTL: time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	locks := make([]*lock.Mutex, 64)
	for i := range locks {
		locks[i] = lock.NewSession(c, l).Mutex(fmt.Sprint("lock/", i))
	}
	return func(i int) error {
		held, err := locks[i].Lock(ctx)
		if err == nil {
			err = held.Release(ctx)
		}
		return err
	}
}
