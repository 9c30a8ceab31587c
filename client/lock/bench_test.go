package lock_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"leasehold.dev/client"
)

// BenchmarkHandOver is how fast a lock goes from holder to holder, with 16 that want it all
// the time, each with a client of its own or all with one.
func BenchmarkHandOver(b *testing.B) {
	for _, clients := range []int{1, 16} {
		b.Run(fmt.Sprintf("clients=%d", clients), func(b *testing.B) {
			members := newCluster(b, 1)
			list := make([]*client.Client, clients)
			for i := range list {
				list[i] = members.connect(b)
			}
			const waiters = 16
			todo := make(chan struct{}, waiters)
			var all sync.WaitGroup
			for i := range waiters {
				m := session(b, list[i%clients]).Mutex("lock")
				all.Go(func() {
					for range todo {
						held, err := m.Lock(context.Background())
						if err == nil {
							err = held.Release(context.Background())
						}
						if err != nil {
							b.Error(err)
						}
					}
				})
			}
			b.ResetTimer()
			for range b.N {
				todo <- struct{}{}
			}
			close(todo)
			all.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "hand-overs/s")
		})
	}
}

// BenchmarkLock is a lock that nobody else wants.
func BenchmarkLock(b *testing.B) {
	members := newCluster(b, 1)
	m := session(b, members.connect(b)).Mutex("lock")
	ctx := context.Background()
	b.ResetTimer()
	for range b.N {
		held, err := m.Lock(ctx)
		if err == nil {
			err = held.Release(ctx)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
