package native

import (
	"sync/atomic"
	"testing"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/fsm"
)

// TestIdleStreamSleeps checks that an idle stream never wakes up, not even after a request was
// answered. A stream that is waiting only for a progress notification wakes up when the
// notification is due. Each wake-up requests the view, so the test counts these requests during an
// hour.
func TestIdleStreamSleeps(t *testing.T) {
	onStream(t, func(b *bench) {
		go func() { _ = b.node.hub.Run(b.ctx) }()
		wakes := func() int64 {
			b.pass(lookEvery) // everything due has been done
			before := b.node.views.Load()
			b.pass(time.Hour)
			return b.node.views.Load() - before
		}
		if n := wakes(); n != 0 {
			t.Errorf("a new stream woke up %d times", n)
		}
		b.send(putRequest(1, 0))
		b.answer()
		b.only()
		b.send(&pb.Request{Id: 2, Body: &pb.Request_Watch{Watch: &pb.WatchRequest{Key: []byte("k")}}})
		b.only()
		if n := wakes(); n != 0 {
			t.Errorf("a stream with a watch woke up %d times", n)
		}
		b.send(&pb.Request{Id: 3, Body: &pb.Request_Watch{Watch: &pb.WatchRequest{
			Key: []byte("k"), ProgressMs: (10 * time.Minute).Milliseconds(),
		}}})
		b.only()
		if n := wakes(); n < 6 || n > 60 {
			t.Errorf("a stream with six progress notifications woke up %d times", n)
		}
		if list := b.got(); len(list) != 6 {
			t.Errorf("%d progress notifications", len(list))
		}
	})
}

// TestSoonerLookCounts checks that a late deadline does not delay an earlier one. A stream with a
// notification due in ten minutes receives a request that times out after one second.
func TestSoonerLookCounts(t *testing.T) {
	onStream(t, func(b *bench) {
		go func() { _ = b.node.hub.Run(b.ctx) }()
		b.send(&pb.Request{Id: 1, Body: &pb.Request_Watch{Watch: &pb.WatchRequest{
			Key: []byte("k"), ProgressMs: (10 * time.Minute).Milliseconds(),
		}}})
		b.only()
		b.pass(2 * lookEvery)
		b.send(putRequest(2, 1000))
		b.pass(time.Second + 2*lookEvery)
		if list := b.got(); len(list) != 1 || list[0].Id != 2 {
			t.Errorf("a second later: %v", list)
		}
	})
}

// viewCount counts views.
type viewCount struct{ views atomic.Int64 }

func (c *viewCount) count(v *fsm.View) *fsm.View {
	c.views.Add(1)
	return v
}
