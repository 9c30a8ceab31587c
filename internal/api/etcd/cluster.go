package etcd

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"net"
	"net/url"
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
)

// clusterService serves etcdserverpb.Cluster.
type clusterService struct {
	pb.UnsafeClusterServer
	identity
	node Node
}

// header returns a header without a revision, as in etcd.
func (s *clusterService) header(v *fsm.View) *pb.ResponseHeader { return s.headerAt(v, 0) }

// MemberList implements pb.ClusterServer.
func (s *clusterService) MemberList(
	ctx context.Context, r *pb.MemberListRequest,
) (*pb.MemberListResponse, error) {
	if r.Linearizable {
		if err := s.node.Confirm(ctx); err != nil {
			return nil, api.ReadError(err)
		}
	}
	v := s.node.View()
	if err := checkLogin(ctx, v); err != nil {
		return nil, err
	}
	return &pb.MemberListResponse{Header: s.header(v), Members: members(v)}, nil
}

// MemberAdd implements pb.ClusterServer. It generates the ID here, because apply must be
// deterministic. If the ID has ever been in use, which is unlikely, it generates another.
func (s *clusterService) MemberAdd(
	ctx context.Context, r *pb.MemberAddRequest,
) (*pb.MemberAddResponse, error) {
	if err := root(ctx, s.node.View()); err != nil {
		return nil, err
	}
	if !validURLs(r.PeerURLs) {
		return nil, rpctypes.ErrGRPCMemberBadURLs
	}
	m := fsm.Member{PeerURLs: cleanURLs(r.PeerURLs), Learner: r.IsLearner}
	for {
		m.ID = 1 + rand.Uint64N(math.MaxUint64)
		err := s.change(ctx, &fsm.AddMember{Member: m})
		if errors.Is(err, rpctypes.ErrGRPCMemberExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		v := s.node.View()
		return &pb.MemberAddResponse{
			Header: s.header(v), Members: members(v),
			Member: &pb.Member{ID: m.ID, PeerURLs: m.PeerURLs, IsLearner: m.Learner},
		}, nil
	}
}

// MemberRemove implements pb.ClusterServer.
func (s *clusterService) MemberRemove(
	ctx context.Context, r *pb.MemberRemoveRequest,
) (*pb.MemberRemoveResponse, error) {
	if err := s.change(ctx, &fsm.RemoveMember{ID: r.ID}); err != nil {
		return nil, err
	}
	v := s.node.View()
	left := slices.DeleteFunc(members(v), func(m *pb.Member) bool { return m.ID == r.ID })
	return &pb.MemberRemoveResponse{Header: s.header(v), Members: left}, nil
}

// MemberUpdate implements pb.ClusterServer. It proposes only the peer URLs. The member reports its
// other properties when it starts.
func (s *clusterService) MemberUpdate(
	ctx context.Context, r *pb.MemberUpdateRequest,
) (*pb.MemberUpdateResponse, error) {
	if err := root(ctx, s.node.View()); err != nil {
		return nil, err
	}
	if _, ok := s.node.View().Member(r.ID); ok && !validURLs(r.PeerURLs) {
		return nil, rpctypes.ErrGRPCMemberBadURLs
	}
	m := fsm.Member{ID: r.ID, PeerURLs: cleanURLs(r.PeerURLs)}
	if err := s.change(ctx, &fsm.SetMember{Member: m}); err != nil {
		return nil, err
	}
	v := s.node.View()
	return &pb.MemberUpdateResponse{Header: s.header(v), Members: members(v)}, nil
}

// MemberPromote implements pb.ClusterServer.
func (s *clusterService) MemberPromote(
	ctx context.Context, r *pb.MemberPromoteRequest,
) (*pb.MemberPromoteResponse, error) {
	if err := s.change(ctx, &fsm.PromoteMember{ID: r.ID}); err != nil {
		return nil, err
	}
	v := s.node.View()
	return &pb.MemberPromoteResponse{Header: s.header(v), Members: members(v)}, nil
}

// change proposes a membership change. A change can be unsafe because added members were never
// started. As in etcd, this case has its own error, because the remedy is different.
func (s *clusterService) change(ctx context.Context, c fsm.Command) error {
	_, err := propose(ctx, s.node, c)
	if errors.Is(err, rpctypes.ErrGRPCUnhealthy) && fewStarted(s.node.View(), c) {
		return rpctypes.ErrGRPCMemberNotEnoughStarted
	}
	return err
}

// fewStarted reports whether, after the change c, the voters that have ever been started would be
// too few for a quorum. Started voters have names.
func fewStarted(v *fsm.View, c fsm.Command) bool {
	var voters, started int
	count := func(without uint64) {
		for i := range v.Members {
			if m := &v.Members[i]; !m.Learner && m.ID != without {
				voters++
				if m.Name != "" {
					started++
				}
			}
		}
	}
	switch c := c.(type) {
	case *fsm.AddMember:
		count(0)
		if c.Member.Learner || voters == 1 && started == 1 {
			return false
		}
		voters++
	case *fsm.RemoveMember:
		count(c.ID)
	case *fsm.PromoteMember:
		count(c.ID)
		voters++
		started++ // the learner is in sync, so it has been started
	default:
		return false
	}
	return started < voters/2+1
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

// validURLs reports whether all URLs are valid member addresses. The rules are etcd's.
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

// cleanURLs returns the URLs in the form that validURLs checked, sorted.
func cleanURLs(urls []string) []string {
	out := make([]string, len(urls))
	for i, s := range urls {
		out[i] = strings.TrimSpace(s)
	}
	slices.Sort(out)
	return out
}
