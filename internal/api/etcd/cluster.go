package etcd

import (
	"context"
	"net"
	"net/url"
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
)

// errOneMember answers what would change who is in the cluster.
var errOneMember = status.Error(codes.Unimplemented,
	"leasehold: a cluster has one member yet, and its membership cannot be changed")

// clusterNode is what the Cluster service needs of the member.
type clusterNode interface {
	Proposer
	Reader
}

// clusterService serves etcdserverpb.Cluster.
type clusterService struct {
	pb.UnsafeClusterServer
	identity
	node clusterNode
}

// header is without a revision, as in etcd.
func (s *clusterService) header(v *fsm.View) *pb.ResponseHeader { return s.headerAt(v, 0) }

// MemberList implements pb.ClusterServer.
func (s *clusterService) MemberList(
	ctx context.Context, r *pb.MemberListRequest,
) (*pb.MemberListResponse, error) {
	if r.Linearizable {
		if err := s.node.Confirm(ctx); err != nil {
			return nil, api.Error(err)
		}
	}
	v := s.node.View()
	return &pb.MemberListResponse{Header: s.header(v), Members: members(v)}, nil
}

// MemberUpdate implements pb.ClusterServer.
func (s *clusterService) MemberUpdate(
	ctx context.Context, r *pb.MemberUpdateRequest,
) (*pb.MemberUpdateResponse, error) {
	m, ok := find(s.node.View(), r.ID)
	if !ok {
		return nil, rpctypes.ErrGRPCMemberNotFound
	}
	if !validURLs(r.PeerURLs) {
		return nil, rpctypes.ErrGRPCMemberBadURLs
	}
	m.PeerURLs = slices.Clone(r.PeerURLs)
	if _, err := propose(ctx, s.node, &fsm.SetMember{Member: m}); err != nil {
		return nil, err
	}
	v := s.node.View()
	return &pb.MemberUpdateResponse{Header: s.header(v), Members: members(v)}, nil
}

// MemberAdd implements pb.ClusterServer.
func (s *clusterService) MemberAdd(
	_ context.Context, r *pb.MemberAddRequest,
) (*pb.MemberAddResponse, error) {
	if !validURLs(r.PeerURLs) {
		return nil, rpctypes.ErrGRPCMemberBadURLs
	}
	for _, m := range s.node.View().Members {
		for _, u := range r.PeerURLs {
			if slices.Contains(m.PeerURLs, u) {
				return nil, rpctypes.ErrGRPCPeerURLExist
			}
		}
	}
	return nil, errOneMember
}

// MemberRemove implements pb.ClusterServer.
func (s *clusterService) MemberRemove(
	_ context.Context, r *pb.MemberRemoveRequest,
) (*pb.MemberRemoveResponse, error) {
	if _, ok := find(s.node.View(), r.ID); !ok {
		return nil, rpctypes.ErrGRPCMemberNotFound
	}
	return nil, errOneMember
}

// MemberPromote implements pb.ClusterServer.
func (s *clusterService) MemberPromote(
	_ context.Context, r *pb.MemberPromoteRequest,
) (*pb.MemberPromoteResponse, error) {
	m, ok := find(s.node.View(), r.ID)
	switch {
	case !ok:
		return nil, rpctypes.ErrGRPCMemberNotFound
	case !m.Learner:
		return nil, rpctypes.ErrGRPCMemberNotLearner
	default:
		return nil, errOneMember
	}
}

func find(v *fsm.View, id uint64) (fsm.Member, bool) {
	for _, m := range v.Members {
		if m.ID == id {
			return m, true
		}
	}
	return fsm.Member{}, false
}

func members(v *fsm.View) []*pb.Member {
	out := make([]*pb.Member, len(v.Members))
	for i, m := range v.Members {
		out[i] = &pb.Member{
			ID: m.ID, Name: m.Name, PeerURLs: m.PeerURLs, ClientURLs: m.ClientURLs,
			IsLearner: m.Learner,
		}
	}
	return out
}

// validURLs reports whether all are addresses that a member could have, by
// etcd's rules.
func validURLs(urls []string) bool {
	for _, s := range urls {
		u, err := url.Parse(strings.TrimSpace(s))
		if err != nil {
			return false
		}
		switch u.Scheme {
		case "http", "https":
			if _, _, err := net.SplitHostPort(u.Host); err != nil || u.Path != "" {
				return false
			}
		case "unix", "unixs":
		default:
			return false
		}
	}
	return len(urls) > 0
}
