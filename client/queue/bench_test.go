package queue_test

import (
	"context"
	"testing"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/queue"
	"leasehold.dev/test/rig"
)

// BenchmarkQueue is one item pushed, claimed and acknowledged, by as many workers as there are
// goroutines.
func BenchmarkQueue(b *testing.B) {
	r := rig.New(b, 1)
	c := r.Dial(client.Config{})
	q := queue.New(c, "q", queue.Config{TTL: time.Minute})
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
