package queue_test

import (
	"errors"
	"testing"

	"leasehold.dev/client"
	"leasehold.dev/client/queue"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/rig"
)

// TestEmptyName checks that every call rejects an empty name.
func TestEmptyName(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		c, ctx := r.Dial(client.Config{}), rig.Soon(t)
		q := queue.New(c, "", queue.Config{})
		calls := map[string]error{}
		_, calls["push"] = q.Push(ctx, nil, 0)
		_, calls["claim"] = q.TryClaim(ctx)
		_, calls["count"] = q.Stats(ctx)
		_, calls["list"] = q.List(ctx, "", 1)
		_, calls["dead"] = q.Dead(ctx, "", 1)
		_, calls["requeue"] = q.Requeue(ctx, "1")
		_, calls["discard"] = q.Discard(ctx, "1")
		for call, err := range calls {
			if !errors.Is(err, client.ErrInvalid) {
				t.Errorf("%s: %v", call, err)
			}
		}
	})
}
