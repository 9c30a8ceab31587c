package native

import (
	"context"
	"crypto/sha256"
	"errors"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

func (s *leases) changeTTL(
	ctx context.Context, r *pb.ChangeTTLRequest, n number,
) (*pb.ChangeTTLResponse, error) {
	if err := checkRef(r.Lease, true); err != nil {
		return nil, err
	}
	if err := s.checkTTL(r.TtlMs); err != nil {
		return nil, err
	}
	c, err := s.change(ctx, n.once(&fsm.ChangeTTL{
		ID: lease.ID(r.Lease.Id), Name: r.Lease.Name, Token: lease.Token(r.Lease.Token),
		TTL: lease.TTL(r.TtlMs), MaxCacheTTL: s.o.MaxCacheTTL,
	}))
	if err != nil {
		return nil, err
	}
	return &pb.ChangeTTLResponse{Header: c.header, Lease: c.lease}, nil
}

// handOver hands a lease over to another owner. A repeated call returns no secret, because the
// lease already has the secret that was generated for the first call.
func (s *leases) handOver(
	ctx context.Context, r *pb.HandOverRequest, n number,
) (*pb.HandOverResponse, error) {
	if err := checkRef(r.Lease, true); err != nil {
		return nil, err
	}
	if err := errors.Join(
		checkText("owner", r.Owner), checkText("principal", r.Principal),
	); err != nil {
		return nil, err
	}
	if r.Principal != "" {
		if _, err := s.authorizer(ctx).principal(r.Principal); err != nil {
			return nil, err
		}
	}
	var t lease.Terms
	secret := s.secret(r.Resumable, &t)
	c, err := s.change(ctx, n.once(&fsm.HandOver{
		ID: lease.ID(r.Lease.Id), Name: r.Lease.Name, Token: lease.Token(r.Lease.Token),
		Owner: r.Owner, Secret: t.Secret, Principal: r.Principal,
	}))
	if err != nil {
		return nil, err
	}
	if c.repeated {
		secret = nil
	}
	return &pb.HandOverResponse{Header: c.header, Lease: c.lease, Secret: secret}, nil
}

// resume takes over a lease with its secret. The state machine compares hashes, so its timing
// reveals nothing about the secret.
func (s *leases) resume(
	ctx context.Context, r *pb.ResumeRequest, n number,
) (*pb.ResumeResponse, error) {
	if err := checkOne(r.Id, r.Name); err != nil {
		return nil, err
	}
	if len(r.Secret) != secretBytes {
		return nil, invalid("secret must be %d bytes long, not %d", secretBytes, len(r.Secret))
	}
	c, err := s.change(ctx, n.once(&fsm.Resume{
		ID: lease.ID(r.Id), Name: r.Name, Secret: sha256.Sum256(r.Secret),
	}))
	if err != nil {
		return nil, err
	}
	return &pb.ResumeResponse{Header: c.header, Lease: c.lease}, nil
}

// changed is a lease whose TTL has just restarted.
type changed struct {
	header   *pb.Header
	lease    *pb.Lease
	repeated bool
}

// change proposes a command that restarts the TTL of a lease. If the command repeats an earlier
// one, its result is the stored outcome of the first attempt. The TTL has been running since then,
// so change renews the lease.
func (s *leases) change(ctx context.Context, c fsm.Command) (changed, error) {
	res, err := s.propose(ctx, c)
	if err != nil {
		return changed{}, err
	}
	m := fresh(res.Value.(*lease.Info))
	if res.Repeated {
		err = s.renewListed(ctx, m)
	}
	return changed{s.header(s.node.View(), res.Revision), m, res.Repeated}, err
}
