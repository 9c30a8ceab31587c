package queue_test

import (
	"context"
	"errors"
	"testing"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/queue"
	"leasehold.dev/lease"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/rig"
)

func puts(r *pb.Request) bool    { return rig.Does(r, (*pb.Op).GetPut) }
func revokes(r *pb.Request) bool { return rig.Does(r, (*pb.Op).GetRevoke) }

// unsureThenRefused leaves the outcome of the first attempt unknown and refuses the second.
func unsureThenRefused(n int) *pb.Response {
	if a := rig.Unsure(func() {})(n); a != nil {
		return a
	}
	return rig.Refused(n)
}

// TestUnknownOutcome checks that a change fails with an unknown outcome if one attempt may have
// been applied, or may be applied later. This does not depend on the outcome of the next attempt. A
// program that trusted the refusal would repeat everything.
func TestUnknownOutcome(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		direct, ctx := r.Dial(client.Config{}), rig.Soon(t)
		cfg := queue.Config{TTL: time.Minute, MaxTries: 1}
		for name, x := range map[string]struct {
			match func(*pb.Request) bool
			call  func(q *queue.Queue) error
		}{
			"push": {puts, func(q *queue.Queue) error {
				_, err := q.Push(ctx, nil, 0)
				return err
			}},
			"ack":  {deletes, func(q *queue.Queue) error { return claim(t, q).Ack(ctx) }},
			"nack": {revokes, func(q *queue.Queue) error { return claim(t, q).Nack(ctx, 0) }},
			"requeue": {deletes, func(q *queue.Queue) error {
				d := queue.New(direct, "requeue", cfg)
				if err := claim(t, d).Nack(ctx, 0); err != nil {
					return err
				}
				_, err := q.Requeue(ctx, rig.Must[[]queue.Info](t)(d.Dead(ctx, "", 1))[0].ID)
				return err
			}},
		} {
			push(t, queue.New(direct, name, cfg), "x")
			c := rig.Through(t, r.Members[0], x.match, unsureThenRefused)
			err := x.call(queue.New(c, name, cfg))
			if !errors.Is(err, client.ErrUnknownOutcome) || !errors.Is(err, client.ErrPermissionDenied) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// TestClaimRefused checks that a denied claim fails immediately, without a retry.
func TestClaimRefused(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		cfg := queue.Config{TTL: time.Minute}
		push(t, queue.New(r.Dial(client.Config{}), "q", cfg), "x")
		c := rig.Through(t, r.Members[0], claims, refusedOnce)
		i, err := queue.New(c, "q", cfg).Claim(rig.Soon(t))
		if !errors.Is(err, client.ErrPermissionDenied) {
			t.Errorf("claimed %+v, %v", i, err)
		}
	})
}

// late returns a client whose first claim is answered only when wait returns. wait receives the
// claim's lease. Matching requests are refused.
func late(
	t *testing.T, r *rig.Rig, match func(*pb.Request) bool, wait func(lease.ID),
) *client.Client {
	t.Helper()
	answered := false
	b := &rig.Between{
		Instead: func(r *pb.Request) *pb.Response {
			if match(r) {
				return rig.Refused(1)
			}
			return nil
		},
		Seen: func(r *pb.Response) {
			for _, res := range r.GetTxn().GetResponses() {
				if g := res.GetGrant(); g != nil && !answered {
					answered = true
					wait(lease.ID(g.GetLease().GetId()))
				}
			}
		},
	}
	return b.Serve(t, r.Members[0])
}

// TestClaimAnsweredLate checks that a claim does not count if its response arrives after its lease
// has ended. The worker revokes the lease, if it still exists, and claims again. A failure to
// revoke it is an error.
func TestClaimAnsweredLate(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		direct, ctx := r.Dial(client.Config{}), rig.Soon(t)
		cfg := queue.Config{TTL: 100 * time.Millisecond}
		for name, x := range map[string]struct {
			refused func(*pb.Request) bool
			fails   bool
		}{
			"revoked":     {rig.Watches, false},
			"not there":   {rig.Watches, false},
			"not revoked": {rig.Revokes, true},
		} {
			push(t, queue.New(direct, name, cfg), "x")
			c := late(t, r, x.refused, func(id lease.ID) {
				<-time.After(cfg.TTL)
				if name == "not there" {
					// fails if the lease has already ended
					_ = direct.Revoke(ctx, leases.Ref{ID: id})
				}
			})
			i, err := queue.New(c, name, cfg).Claim(ctx)
			if (err != nil) != x.fails || err == nil && i.Tries() < 2 {
				t.Errorf("%s: claimed %+v, %v", name, i, err)
			}
		}
	})
}

// TestReadyGivenUp checks a worker that gives up while history is compacted as fast as it reads. It
// gets an error and does not conclude that the queue is empty.
func TestReadyGivenUp(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		cfg := queue.Config{TTL: time.Minute}
		many(t, queue.New(r.Dial(client.Config{}), "q", cfg), time.Hour)
		ctx, cancel := context.WithCancel(rig.Soon(t))
		defer cancel()
		c := rig.Through(t, r.Members[0], pages, func(n int) *pb.Response {
			switch {
			case n == 12: // by now, the wait is usually a quarter of a second
				time.AfterFunc(10*time.Millisecond, cancel)
				fallthrough
			case n%2 == 0:
				return rig.Refusal(pb.Reason_REASON_COMPACTED)
			}
			return nil
		})
		if i, err := queue.New(c, "q", cfg).TryClaim(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("claimed %+v, %v", i, err)
		}
	})
}
