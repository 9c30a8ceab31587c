package native

import (
	"testing"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
)

// TestWatchFutureRevision checks that a watch is rejected if its start revision is not reached even
// after a confirm round (T34). A watch is accepted if only this member has not reached its start
// revision, or if it starts at the next revision. A failed round is retried for as long as the
// watch exists.
func TestWatchFutureRevision(t *testing.T) {
	onStream(t, func(b *bench) {
		b.node.put(&fsm.Put{Key: "k"}) // revision 2
		watch := func(id uint64, from int64) {
			t.Helper()
			b.send(&pb.Request{Id: id, Body: &pb.Request_Watch{
				Watch: &pb.WatchRequest{Key: []byte("k"), StartRevision: from},
			}})
			if r := b.only(); r.GetWatch() == nil || !r.More {
				t.Errorf("watch %d: response %v", id, r)
			}
		}
		watch(1, 3)
		if n := len(b.node.submitted); n != 0 {
			t.Errorf("%d confirm rounds for the next revision", n)
		}
		watch(2, 4)
		watch(3, 5)
		watch(4, 5)
		confirm := func(err error) (n int) {
			list := b.node.submitted
			b.node.submitted = nil
			for _, s := range list {
				s.To.Answered(fsm.Result{}, err)
			}
			b.pass(2 * lookEvery)
			return len(list)
		}
		if n := confirm(api.ErrTimeout); n != 3 {
			t.Errorf("%d confirm rounds", n)
		}
		b.send(&pb.Request{Id: 5, Body: &pb.Request_Cancel{Cancel: 4}})
		b.got()
		b.node.put(&fsm.Put{Key: "k"}) // revision 3, which the member reaches during the round
		if n := confirm(nil); n != 3 {
			t.Errorf("%d confirm rounds after those that failed", n)
		}
		r := b.only()
		if e := r.GetError(); r.Id != 3 || r.More || e.GetReason() != pb.Reason_REASON_FUTURE_REVISION {
			t.Errorf("response %v", r)
		}
		if n := confirm(nil); n != 0 {
			t.Errorf("%d more confirm rounds", n)
		}
	})
}
