package coord_test

import (
	"context"
	"testing"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/coord"
)

// BenchmarkQueue is one item pushed, claimed and acknowledged, by as many workers as there are
// goroutines.
func BenchmarkQueue(b *testing.B) {
	r := newRig(b, 1)
	c := r.dial(client.Config{})
	q := coord.NewQueue(c, "q", coord.QueueConfig{TTL: time.Minute})
	b.RunParallel(func(pb *testing.PB) {
		ctx := context.Background()
		for pb.Next() {
			if _, err := q.Push(ctx, []byte("payload"), 0); err != nil {
				b.Error(err)
				return
			}
			i, err := q.Claim(ctx)
			if err == nil {
				err = i.Ack(ctx)
			}
			if err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// BenchmarkPool is one ID of a thousand acquired and released.
func BenchmarkPool(b *testing.B) {
	r := newRig(b, 1)
	c := r.dial(client.Config{})
	ctx := context.Background()
	p := ok[*coord.Pool](b)(coord.CreatePool(ctx, c, "p", coord.PoolSpec{Last: 999}))
	for b.Loop() {
		l, err := p.Acquire(ctx, coord.PoolRequest{Owner: "b"})
		if err == nil {
			err = l.Release(ctx)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
