package queue_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client"
	"leasehold.dev/client/queue"
	"leasehold.dev/client/store"
	"leasehold.dev/lease"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/rig"
)

// looks is a context that counts the calls to its Deadline method. Every request makes at least
// one.
type looks struct {
	context.Context
	n atomic.Int64
}

// Deadline implements context.Context.
func (l *looks) Deadline() (time.Time, bool) {
	l.n.Add(1)
	return l.Context.Deadline()
}

// TestWaitingTakesFirst checks that a single waiting worker is idle until there are items, and
// takes the first of several items that arrive together.
func TestWaitingTakesFirst(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		ctx, cfg := &looks{Context: rig.Soon(t)}, queue.Config{TTL: time.Minute}
		watching := make(chan struct{}, 10)
		b := &rig.Between{
			Instead: func(*pb.Request) *pb.Response { return nil },
			Seen: func(r *pb.Response) {
				if r.GetWatch() != nil {
					watching <- struct{}{}
				}
			},
		}
		q := queue.New(b.Serve(t, r.Members[0]), "q", cfg)
		got := rig.Async(func() (*queue.Item, error) { return q.Claim(ctx) })
		<-watching
		<-time.After(20 * time.Millisecond)
		if n := ctx.n.Load(); n > 100 {
			t.Errorf("it looks, and looks again: %d times", n)
		}
		ids, err := queue.New(r.Dial(client.Config{}), "q", cfg).PushAll(
			ctx, make([][]byte, queue.MaxBatch), 0)
		if err != nil {
			t.Fatal(err)
		}
		if a := <-got; a.Err != nil || a.Value.ID() != ids[0] {
			t.Errorf("claimed %+v, %v", a.Value, a.Err)
		}
	})
}

// TestClaimReleases checks that a claim whose response is lost does not block the item until the
// claim expires.
func TestClaimReleases(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		direct, ctx := r.Dial(client.Config{}), rig.Soon(t)
		cfg := queue.Config{TTL: time.Hour}
		b := &rig.Between{}
		n := 0
		b.Instead = func(r *pb.Request) *pb.Response {
			if !claims(r) {
				return nil
			}
			if n++; n == 1 {
				ops := r.GetTxn().GetSuccess()
				id := lease.ID(ops[0].GetGrant().GetId())
				if _, err := direct.Txn(ctx, store.Txn{Then: []store.Op{
					client.Grant{ID: id, TTL: time.Hour},
					store.Put{Key: string(ops[1].GetPut().GetKey()), Lease: id},
				}}); err != nil {
					t.Error(err)
				}
			}
			return rig.Unsure(func() {})(n)
		}
		push(t, queue.New(direct, "q", cfg), "x")
		if i := claim(t, queue.New(b.Serve(t, r.Members[0]), "q", cfg)); string(i.Payload()) != "x" {
			t.Errorf("claimed %q", i.Payload())
		}
	})
}
