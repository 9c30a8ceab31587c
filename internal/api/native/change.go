package native

import (
	"context"
	"crypto/sha256"

	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
	pb "leasehold.dev/leaseholdpb"
)

// ChangeTTL implements pb.LeasesServer.
func (s *leases) ChangeTTL(
	ctx context.Context, r *pb.ChangeTTLRequest,
) (*pb.ChangeTTLResponse, error) {
	if err := checkRef(r.Lease, true); err != nil {
		return nil, err
	}
	if err := s.checkTTL(r.TtlMs); err != nil {
		return nil, err
	}
	h, m, err := s.change(ctx, &fsm.ChangeTTL{
		ID: lease.ID(r.Lease.Id), Token: lease.Token(r.Lease.Token), TTL: lease.TTL(r.TtlMs),
	})
	if err != nil {
		return nil, err
	}
	return &pb.ChangeTTLResponse{Header: h, Lease: m}, nil
}

// HandOver implements pb.LeasesServer.
func (s *leases) HandOver(
	ctx context.Context, r *pb.HandOverRequest,
) (*pb.HandOverResponse, error) {
	if err := checkRef(r.Lease, true); err != nil {
		return nil, err
	}
	if err := checkText("owner", r.Owner); err != nil {
		return nil, err
	}
	var t lease.Terms
	secret := s.secret(r.Resumable, &t)
	h, m, err := s.change(ctx, &fsm.HandOver{
		ID: lease.ID(r.Lease.Id), Token: lease.Token(r.Lease.Token),
		Owner: r.Owner, Secret: t.Secret,
	})
	if err != nil {
		return nil, err
	}
	return &pb.HandOverResponse{Header: h, Lease: m, Secret: secret}, nil
}

// Resume implements pb.LeasesServer. What is compared, by the state machine, are hashes, so
// the time that it takes tells nothing of the secret.
func (s *leases) Resume(ctx context.Context, r *pb.ResumeRequest) (*pb.ResumeResponse, error) {
	if err := checkOne(r.Id, r.Name); err != nil {
		return nil, err
	}
	if len(r.Secret) != secretBytes {
		return nil, invalid("a secret has %d bytes, this one has %d", secretBytes, len(r.Secret))
	}
	id := lease.ID(r.Id)
	if r.Name != "" {
		held, err := s.named(ctx, r.Name)
		if err != nil {
			return nil, err
		}
		id = held.ID
	}
	h, m, err := s.change(ctx, &fsm.Resume{ID: id, Secret: sha256.Sum256(r.Secret)})
	if err != nil {
		return nil, err
	}
	return &pb.ResumeResponse{Header: h, Lease: m}, nil
}

// change proposes a command after which a lease's TTL runs anew.
func (s *leases) change(ctx context.Context, c fsm.Command) (*pb.Header, *pb.Lease, error) {
	res, err := s.propose(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	m := api.LeaseMessage(res.Value.(*lease.Info))
	m.RemainingMs = m.TtlMs
	return s.header(s.node.View(), res.Revision), m, nil
}
