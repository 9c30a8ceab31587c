package native

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/access"
	"leasehold.dev/internal/replica"
)

func renewMany(id uint64, leases int) *pb.Request {
	r := &pb.RenewRequest{}
	for i := range leases {
		r.Ids = append(r.Ids, int64(i+1))
	}
	return &pb.Request{Id: id, Body: &pb.Request_Renew{Renew: r}}
}

// TestUnansweredRenewalsStopTheStream checks that a stream with pending renewals of many leases is
// not read until they are answered, even if the client does not read. When the stream ends, its
// renewals no longer count toward its principal's limit.
func TestUnansweredRenewalsStopTheStream(t *testing.T) {
	alice := access.Caller{User: "alice", Revision: 9}
	for _, reads := range []bool{true, false} {
		onStreamOf(t, alice, limited(t, 1).Admit, func(b *bench) {
			for !reads && len(b.answers) < cap(b.answers) {
				b.answers <- nil
			}
			var taken atomic.Int32
			b.node.renewing = func(*replica.Renewals) error {
				taken.Add(1)
				return nil
			}
			const many = 20
			go func() {
				for id := range uint64(many) {
					select {
					case b.requests <- &pb.ClientMessage{
						Requests: []*pb.Request{renewMany(id+1, maxRenewing/2)},
					}:
					case <-b.ctx.Done():
					}
				}
			}()
			b.pass(0)
			if n := taken.Load(); n != 2 {
				t.Errorf("%d renewals were accepted", n)
			}
			b.pass(20 * patience)
			if n := int(taken.Load()); reads && n != many || !reads && n > 6 {
				t.Errorf("%d renewals were accepted in the end; the client reads: %v", n, reads)
			}
			b.stop()
			b.pass(0)
			soon, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			if _, err := b.renewals.Enter(soon, "alice", 1<<18); err != nil {
				t.Errorf("leases count after the end of their stream: %v", err)
			}
			if _, err := b.renewals.Enter(soon, "alice", 1); err == nil {
				t.Error("there is no limit")
			}
		})
	}
}

// TestSlowLeaseHoldsBackNoRenewals checks that a slow renewal, such as one delayed by a cache, does
// not delay other renewals on its stream (T15).
func TestSlowLeaseHoldsBackNoRenewals(t *testing.T) {
	onStream(t, func(b *bench) {
		var taken atomic.Int32
		b.node.renewing = func(r *replica.Renewals) error {
			taken.Add(1)
			for i := range r.TTLs {
				if i > 0 {
					r.TTLs[i] = 900
					r.Kept++
				}
			}
			r.Owner.(RenewedAll).RenewedTogether()
			return nil
		}
		const many = 5
		for id := range uint64(many) {
			b.requests <- &pb.ClientMessage{Requests: []*pb.Request{renewMany(id+1, maxRenewing/2)}}
			b.pass(2 * partialAfter)
		}
		if n := taken.Load(); n != many {
			t.Errorf("%d renewals were accepted, want %d", n, many)
		}
	})
}
