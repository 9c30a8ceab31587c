package client

import (
	"testing"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
)

// TestColumns: the answer to a renewal comes in parts. A lease with a TTL in the column is
// renewed, by its place; of the others a result tells, then or later.
func TestColumns(t *testing.T) {
	inBubble(t, 1, exact, func(t *testing.T, c *Client, f *fake) {
		one, late, gone := grant(t, c, Grant{ID: 100}), grant(t, c, Grant{ID: 200}),
			grant(t, c, Grant{ID: 300})
		rounds := 0
		f.set(func() {
			f.answer = func(s *fakeStream, r *pb.Request) []*pb.Response {
				ask := r.GetRenew()
				if ask == nil {
					return f.obey(s, r)
				}
				rounds++
				first, rest := &pb.RenewResponse{}, &pb.RenewResponse{}
				for i, id := range ask.Ids {
					first.TtlMs = append(first.TtlMs, 0)
					if ask.Tokens[i] != 1 {
						t.Errorf("token %d of lease %d", ask.Tokens[i], id)
					}
					switch res := (&pb.RenewResult{Id: id, TtlMs: fakeTTL}); id {
					case 100:
						first.TtlMs[i] = fakeTTL
					case 200:
						rest.Results = append(rest.Results, res)
					default:
						res.Reason, res.TtlMs = pb.Reason_REASON_LEASE_NOT_FOUND, 0
						rest.Results = append(rest.Results, res)
					}
				}
				first.TtlMs = append(first.TtlMs, 77, 77) // of a member that counts badly
				return []*pb.Response{
					{Id: r.Id, More: true, Body: &pb.Response_Renew{Renew: first}},
					{Id: r.Id, Body: &pb.Response_Renew{Renew: rest}},
				}
			}
		})
		pass(time.Minute)
		is(t, one, OK, nil)
		is(t, late, OK, nil)
		is(t, gone, Ended, ErrLost)
		if rounds > 100 {
			t.Errorf("%d renewals in a minute", rounds)
		}
	})
}
