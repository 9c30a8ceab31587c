package queue_test

import (
	"context"
	"testing"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client"
	"leasehold.dev/client/queue"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/rig"
	"leasehold.dev/test/virtual"
)

// TestClaimUnsure checks that a waiting worker keeps track of an item that it may have claimed or
// moved to the dead letters. In this test no attempt is applied, the outcome is unknown, and the
// cluster then drops the client's session.
func TestClaimUnsure(t *testing.T) {
	inprocess.Bubble(t, func(t *testing.T) {
		r := rig.New(t, 1)
		direct := r.Dial(client.Config{})
		for name, cfg := range map[string]queue.Config{
			"claim": {TTL: time.Minute}, "dead": {TTL: time.Minute, MaxTries: 1},
		} {
			virtual.Step(t, name, func(t *testing.T) {
				var tries int
				watching := make(chan struct{}, 100)
				b := &rig.Between{
					Instead: func(r *pb.Request) *pb.Response {
						for _, o := range r.GetTxn().GetSuccess() {
							dead := o.GetDeleteRange() != nil
							if o.GetGrant() == nil && !dead || dead != (name == "dead") {
								continue
							}
							switch tries++; tries {
							case 1:
								return rig.Refusal(pb.Reason_REASON_UNKNOWN_OUTCOME)
							case 2:
								return rig.Refusal(pb.Reason_REASON_SESSION_NOT_FOUND)
							}
							return nil
						}
						return nil
					},
					Seen: func(r *pb.Response) {
						if r.GetWatch() != nil {
							watching <- struct{}{}
						}
					},
				}
				c := b.Serve(t, r.Members[0])
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				q := queue.New(c, name, cfg)
				pushed := queue.New(direct, name, cfg)
				if name == "dead" {
					push(t, pushed, "dead")
					lost := claim(t, pushed)
					watch := rig.Async(func() (*queue.Item, error) { return q.Claim(ctx) })
					<-watching
					if err := direct.Revoke(ctx, lost.Lease().Ref()); err != nil {
						t.Fatal(err)
					}
					rig.Keys(t, direct, "dead/dead/", 1)
					push(t, pushed, "next")
					if a := <-watch; a.Err != nil || string(a.Value.Payload()) != "next" {
						t.Errorf("claimed %+v, %v", a.Value, a.Err)
					}
					return
				}
				got := rig.Async(func() (*queue.Item, error) { return q.Claim(ctx) })
				<-watching
				push(t, pushed, "x")
				if a := <-got; a.Err != nil || string(a.Value.Payload()) != "x" {
					t.Errorf("claimed %+v, %v", a.Value, a.Err)
				}
				if tries < 3 {
					t.Errorf("it was tried %d times", tries)
				}
			})
		}
	})
}
