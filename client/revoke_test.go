package client

import (
	"context"
	"testing"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client/leases"
	"leasehold.dev/lease"
)

// TestRevokeRepeated checks the result of Revoke if the lease does not exist. On the second
// attempt, this means that the first attempt revoked it. On the first attempt, it is an error.
func TestRevokeRepeated(t *testing.T) {
	inBubble(t, 2, exact, func(t *testing.T, c *Client, f *fake) {
		try := 0
		f.set(func() {
			f.answer = func(s *fakeStream, r *pb.Request) []*pb.Response {
				if try++; try == 1 {
					close(s.cut)
					return nil
				}
				m := &pb.RevokeResponse{}
				for _, l := range r.GetRevoke().Leases {
					res := &pb.RevokeResult{Id: l.Id, Reason: pb.Reason_REASON_LEASE_NOT_FOUND}
					if try == 2 && l.Id == 1 {
						res.Reason = pb.Reason_REASON_UNAVAILABLE
					}
					m.Results = append(m.Results, res)
				}
				return []*pb.Response{{Id: r.Id, Body: &pb.Response_Revoke{Revoke: m}}}
			}
		})
		if err := c.Revoke(t.Context(), leases.Ref{ID: 1}, leases.Ref{ID: 2}); err != nil || try != 3 {
			t.Errorf("after %d tries: %v", try, err)
		}
		want(t, c.Revoke(t.Context(), leases.Ref{ID: 1}), ErrLeaseNotFound)
	})
}

// TestRevokeUnsure checks that the outcome of a revocation is unknown if it is unknown for any of
// the leases.
func TestRevokeUnsure(t *testing.T) {
	unknown, unavailable := pb.Reason_REASON_UNKNOWN_OUTCOME, pb.Reason_REASON_UNAVAILABLE
	for _, reasons := range [][]pb.Reason{{unknown, unavailable}, {unavailable, unknown}} {
		inBubble(t, 1, exact, func(t *testing.T, c *Client, f *fake) {
			f.set(func() {
				f.answer = func(_ *fakeStream, r *pb.Request) []*pb.Response {
					m := &pb.RevokeResponse{}
					for i, l := range r.GetRevoke().Leases {
						m.Results = append(m.Results, &pb.RevokeResult{Id: l.Id, Reason: reasons[i]})
					}
					return []*pb.Response{{Id: r.Id, Body: &pb.Response_Revoke{Revoke: m}}}
				}
			})
			ctx, cancel := context.WithTimeout(t.Context(), ttl)
			defer cancel()
			err := c.Revoke(ctx, leases.Ref{ID: 1}, leases.Ref{ID: 2})
			want(t, err, ErrUnknownOutcome, context.DeadlineExceeded)
		})
	}
}

// TestRevokeOwn checks that revoking one of the client's own leases, even by ID, first ends the
// lease for the program. A cache that depends on the lease therefore does not delay members. A
// different token means a different incarnation.
func TestRevokeOwn(t *testing.T) {
	inBubble(t, 1, exact, func(t *testing.T, c *Client, f *fake) {
		for _, ref := range []func(*Lease) leases.Ref{
			(*Lease).Ref,
			func(l *Lease) leases.Ref { return leases.Ref{ID: l.ID()} },
		} {
			l := grant(t, c, Grant{})
			asked := 0
			f.set(func() {
				f.answer = func(s *fakeStream, r *pb.Request) []*pb.Response {
					if r.GetRevoke() != nil {
						asked++
						is(t, l, ErrReleased)
					}
					return f.obey(s, r)
				}
			})
			another := l.Ref()
			another.Token++
			c.keeper.giveUp(another, ErrReleased)
			is(t, l, nil)
			if err := c.Revoke(t.Context(), ref(l)); err != nil || asked != 1 {
				t.Errorf("asked %d times: %v", asked, err)
			}
		}
	})
}

// TestRevokeMany checks that several calls are made if there are too many leases for one, and that
// a missing lease does not stop the others from being revoked.
func TestRevokeMany(t *testing.T) {
	inBubble(t, 1, exact, func(t *testing.T, c *Client, f *fake) {
		const most = 10_000 // as in internal/api/native
		revoked := make(map[int64]bool)
		f.set(func() {
			f.answer = func(_ *fakeStream, r *pb.Request) []*pb.Response {
				m := &pb.RevokeResponse{}
				list := r.GetRevoke().Leases
				if len(list) > most {
					t.Errorf("%d in one call", len(list))
				}
				for _, l := range list {
					res := &pb.RevokeResult{Id: l.Id}
					if l.Id == 7 {
						res.Reason = pb.Reason_REASON_LEASE_NOT_FOUND
					}
					revoked[l.Id] = true
					m.Results = append(m.Results, res)
				}
				return []*pb.Response{{Id: r.Id, Body: &pb.Response_Revoke{Revoke: m}}}
			}
		})
		var refs []leases.Ref
		for i := range 2*most + 1 {
			refs = append(refs, leases.Ref{ID: lease.ID(i + 1)})
		}
		want(t, c.Revoke(t.Context(), refs...), ErrLeaseNotFound)
		if len(revoked) != len(refs) {
			t.Errorf("%d of %d revoked", len(revoked), len(refs))
		}
	})
}
