package pool_test

import (
	"context"
	"testing"

	"leasehold.dev/client"
	"leasehold.dev/client/pool"
	"leasehold.dev/test/rig"
)

// BenchmarkPool is one ID of a thousand acquired and released.
func BenchmarkPool(b *testing.B) {
	r := rig.New(b, 1)
	c := r.Dial(client.Config{})
	ctx := context.Background()
	p := rig.Must[*pool.Pool](b)(pool.Create(ctx, c, "p", pool.Spec{Last: 999}))
	for b.Loop() {
		l, err := p.Acquire(ctx, pool.Request{Owner: "b"})
		if err == nil {
			err = l.Release(ctx)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}
