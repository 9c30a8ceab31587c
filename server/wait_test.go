package server

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/replica"
	"leasehold.dev/internal/transport"
)

// TestWaitWithoutLeader checks that without a leader, a call fails shortly before its deadline,
// with an error that lists the unresponsive members. Its outcome is reported as unknown. If there
// is a leader, the call waits until the deadline.
func TestWaitWithoutLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{core: &core{peers: &peers{Transport: &transport.Transport{}}}, member: 1}
		n.view.Store(&fsm.View{Members: []fsm.Member{
			{ID: 1, Name: "a"}, {ID: 2, Name: "b"}, {ID: 3, Name: "c"}, {ID: 4, Name: "d", Learner: true},
		}})
		const outage = "no leader: member 1 has none and has no connection to b (2), c (3); "
		for _, tt := range []struct {
			leader         uint64
			deadline, want time.Duration // 0 means no deadline
			err            error
		}{
			{0, time.Second, 900 * time.Millisecond, api.ErrTimeout},
			{0, 5 * time.Second, 4750 * time.Millisecond, api.ErrTimeout},
			{0, time.Hour, requestTimeout, api.ErrTimeout},
			{0, 0, requestTimeout, api.ErrTimeout},
			{2, 5 * time.Second, 5 * time.Second, context.DeadlineExceeded},
			{2, requestTimeout + time.Millisecond, requestTimeout, api.ErrTimeout},
			{2, 0, requestTimeout, api.ErrTimeout},
		} {
			n.status.put(&replica.Status{Leader: tt.leader})
			ctx := t.Context()
			if tt.deadline > 0 {
				c, cancel := context.WithTimeout(ctx, tt.deadline)
				defer cancel()
				ctx = c
			}
			began := time.Now()
			err := n.wait(ctx, &call{timer: time.NewTimer(time.Hour)})
			if got := time.Since(began); got != tt.want || !errors.Is(err, tt.err) ||
				strings.Contains(err.Error(), outage) != (tt.leader == 0) {
				t.Errorf("%+v: %v after %v", tt, err, got)
			}
			if tt.leader == 0 {
				wire := status.Convert(api.ProposalError(err))
				if wire.Code() != codes.Unavailable || !strings.HasPrefix(wire.Message(),
					"etcdserver: request timed out, "+outage) {
					t.Errorf("etcd's clients are told %v", wire)
				}
				if r := api.Reason(err); r != pb.Reason_REASON_UNKNOWN_OUTCOME {
					t.Errorf("those of leasehold.v1 are told %v", r)
				}
			}
		}
	})
}
