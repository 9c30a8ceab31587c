package etcd

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"leasehold.dev/internal/access"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/listen"
	"leasehold.dev/lease"
)

const (
	// maxTTL and minTTL limit the TTL of a lease, in seconds. A TTL above maxTTL is rejected. A TTL
	// below minTTL is raised to it, even if it is zero or negative. etcd does the same, but derives
	// its minimum from the election timeout (2 by default).
	maxTTL = 9_000_000_000
	minTTL = 1

	second = 1000 // in units of lease.TTL
)

var errLeaseID = status.Error(codes.InvalidArgument, "etcdserver: lease ID is negative")

// leaseService serves etcdserverpb.Lease.
type leaseService struct {
	pb.UnsafeLeaseServer
	identity
	node     Node
	stop     context.Context // ends with the service
	panics   *listen.Panics
	renewals *api.Renewals
}

// LeaseGrant implements pb.LeaseServer.
func (s *leaseService) LeaseGrant(
	ctx context.Context, r *pb.LeaseGrantRequest,
) (*pb.LeaseGrantResponse, error) {
	switch {
	case r.ID < 0:
		return nil, errLeaseID
	case r.TTL > maxTTL:
		return nil, rpctypes.ErrGRPCLeaseTTLTooLarge
	}
	terms := lease.Terms{ID: lease.ID(r.ID), TTL: lease.TTL(max(r.TTL, minTTL) * second)}
	info, rev, err := grant(ctx, s.node, terms)
	if err != nil {
		return nil, err
	}
	return &pb.LeaseGrantResponse{
		Header: s.headerAt(s.node.View(), rev),
		ID:     int64(info.ID),
		TTL:    wholeSeconds(info.TTL),
	}, nil
}

// grant grants a lease. If t has no ID, grant generates one, because apply must be deterministic.
// If that ID is in use, which is unlikely, it generates another.
func grant(ctx context.Context, n Node, t lease.Terms) (*lease.Info, int64, error) {
	chosen := t.ID == 0
	for {
		if chosen {
			t.ID = lease.ID(1 + rand.Int64N(1<<63-1))
		}
		res, err := n.Propose(ctx, &fsm.Grant{Terms: t})
		switch {
		case err != nil:
			return nil, 0, api.ProposalError(err)
		case chosen && errors.Is(res.Err, lease.ErrExists):
			continue
		case res.Err != nil:
			return nil, 0, api.Error(res.Err)
		}
		return res.Value.(*lease.Info), res.Revision, nil
	}
}

// LeaseRevoke implements pb.LeaseServer.
func (s *leaseService) LeaseRevoke(
	ctx context.Context, r *pb.LeaseRevokeRequest,
) (*pb.LeaseRevokeResponse, error) {
	res, err := propose(ctx, s.node, &fsm.Revoke{ID: lease.ID(r.ID), By: api.Caller(ctx)})
	if err != nil {
		return nil, err
	}
	return &pb.LeaseRevokeResponse{Header: s.headerAt(s.node.View(), res.Revision)}, nil
}

// LeaseTimeToLive implements pb.LeaseServer.
func (s *leaseService) LeaseTimeToLive(
	ctx context.Context, r *pb.LeaseTimeToLiveRequest,
) (*pb.LeaseTimeToLiveResponse, error) {
	resp := &pb.LeaseTimeToLiveResponse{ID: r.ID, TTL: -1}
	var keys []string
	var of access.Lease
	id := lease.ID(r.ID)
	if err := checkLogin(ctx, s.node.View()); err != nil {
		return nil, err
	}
	err := s.node.InspectLease(ctx, id, func(l *lease.Lessor, left lease.TTL, ok bool) {
		info, here := l.Lookup(id)
		of = fsm.BelongsTo(&info)
		if !ok || !here || info.Delayed {
			return // the lease may have ended since the leader responded
		}
		resp.GrantedTTL = wholeSeconds(info.TTL)
		// Round down. The result must not be -1, which would mean that the lease does not exist.
		resp.TTL = max(0, int64(left/second))
		if r.Keys {
			keys = l.Keys(id)
		}
	})
	if err != nil {
		return nil, api.Error(err)
	}
	v := s.node.View() // at least as new as the state passed to f
	if err := checkSee(ctx, v, of); err != nil {
		return nil, err
	}
	if err := allKeys(ctx, v, access.Read, keys); err != nil {
		return nil, err
	}
	if r.Keys {
		if err := listen.RoomFor(ctx, int64(len(keys))); err != nil {
			return nil, err
		}
	}
	slices.Sort(keys)
	for _, k := range keys {
		resp.Keys = append(resp.Keys, []byte(k))
	}
	resp.Header = s.header(v)
	return resp, nil
}

// LeaseLeases implements pb.LeaseServer. It returns leases in ID order. As in etcd, it rejects the
// call if any lease has a key that the caller may not read. etcd has no leases with a name or a
// principal; here, the response includes those that the caller may see.
func (s *leaseService) LeaseLeases(
	ctx context.Context, _ *pb.LeaseLeasesRequest,
) (*pb.LeaseLeasesResponse, error) {
	var view lease.View
	err := s.node.Inspect(ctx, func(l *lease.Lessor) { view = l.View() })
	if err != nil {
		return nil, api.Error(err)
	}
	if err := listen.RoomFor(ctx, int64(view.Len())); err != nil {
		return nil, err
	}
	v := s.node.View() // at least as new as the leases
	if err := allLeases(ctx, v, view); err != nil {
		return nil, err
	}
	resp := &pb.LeaseLeasesResponse{Header: s.header(v)}
	for info := range view.All() {
		if !info.Delayed && checkSee(ctx, v, fsm.BelongsTo(&info)) == nil {
			resp.Leases = append(resp.Leases, &pb.LeaseStatus{ID: int64(info.ID)})
		}
	}
	return resp, nil
}

// wholeSeconds converts a TTL to seconds, rounding down. It never returns 0, which would mean that
// the lease is gone.
func wholeSeconds(t lease.TTL) int64 { return max(1, int64(t/second)) }
