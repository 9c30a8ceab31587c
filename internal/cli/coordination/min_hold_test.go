package coordination

import (
	"sync/atomic"
	"testing"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client"
	"leasehold.dev/test/rig"
)

// TestMinHoldEnds checks that if --min-hold has almost elapsed, the lock is kept for the shortest
// possible TTL. If the cluster does not allow such a short TTL, the lock is revoked when --min-hold
// has elapsed.
func TestMinHoldEnds(t *testing.T) {
	for _, refused := range []bool{false, true} {
		var ttl atomic.Int64
		var revoked atomic.Bool
		rig.Mute(t, func(r *pb.Request) *pb.Response {
			switch x := r.Body.(type) {
			case *pb.Request_ChangeTtl:
				ttl.Store(x.ChangeTtl.TtlMs)
				if refused {
					return rig.Refusal(pb.Reason_REASON_INVALID)
				}
				return &pb.Response{Body: &pb.Response_ChangeTtl{ChangeTtl: &pb.ChangeTTLResponse{
					Lease: &pb.Lease{Id: 1, Token: 1, TtlMs: x.ChangeTtl.TtlMs, RemainingMs: 1},
				}}}
			case *pb.Request_Revoke:
				revoked.Store(true)
				return &pb.Response{Body: &pb.Response_Revoke{Revoke: &pb.RevokeResponse{
					Results: []*pb.RevokeResult{{Id: 1}},
				}}}
			}
			return nil
		}, func(t *testing.T, c *client.Client) {
			l := rig.Must[*client.Lease](t)(c.Grant(t.Context(), client.Grant{TTL: time.Minute}))
			start := time.Now()
			err := keepFor(l, 10*time.Millisecond)
			took := time.Since(start)
			if err != nil || ttl.Load() != 100 || revoked.Load() != refused ||
				refused != (took == 10*time.Millisecond) {
				t.Errorf("refused %v: %v after %v, TTL %d ms, revoked %v",
					refused, err, took, ttl.Load(), revoked.Load())
			}
		})
	}
}
