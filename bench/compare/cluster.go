package compare

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// A Through selects which members of a cluster the load generator connects to.
type Through string

// The selections of members.
const (
	ThroughAll       Through = "all"
	ThroughLeader    Through = "leader"
	ThroughFollowers Through = "followers"
)

// ParseThrough parses a command-line value.
func ParseThrough(s string) (Through, error) {
	t := Through(s)
	if !slices.Contains([]Through{ThroughAll, ThroughLeader, ThroughFollowers}, t) {
		return "", fmt.Errorf("bench: %q must be all, leader or followers", s)
	}
	return t, nil
}

// roles holds the leader and the followers, recorded at a time when all members agreed on the
// leader.
type roles struct {
	term      uint64
	leader    *member
	followers []*member // in the order of the members
	ids       map[*member]uint64
}

// endpoints returns the endpoints of the members selected by t. The leader comes last, so it gets
// one connection fewer if the connections do not divide evenly.
func (r *roles) endpoints(t Through) []string {
	var list []string
	if t != ThroughLeader {
		for _, m := range r.followers {
			list = append(list, m.endpoint)
		}
	}
	if t != ThroughFollowers {
		list = append(list, r.leader.endpoint)
	}
	return list
}

// endpoints returns the endpoints of the server's members selected by t.
func (s *Server) endpoints(ctx context.Context, t Through) ([]string, error) {
	if len(s.members) == 1 {
		return []string{s.members[0].endpoint}, nil
	}
	r, err := s.roles(ctx)
	if err != nil {
		return nil, err
	}
	return r.endpoints(t), nil
}

// roles queries all members until they agree on the leader.
func (s *Server) roles(ctx context.Context) (*roles, error) {
	var r *roles
	err := poll(ctx, time.Minute, func(ctx context.Context) error {
		status, err := s.status(ctx)
		if err != nil {
			return err
		}
		r, err = agreed(s.members, status)
		return err
	})
	return r, err
}

// status queries the status of every member.
func (s *Server) status(ctx context.Context) ([]*pb.StatusResponse, error) {
	status := make([]*pb.StatusResponse, len(s.members))
	for i, m := range s.members {
		var err error
		if status[i], err = m.status(ctx); err != nil {
			return nil, fmt.Errorf("status of %s: %w", m.endpoint, err)
		}
	}
	return status, nil
}

// agreed derives the roles from the answers of all members.
func agreed(members []*member, status []*pb.StatusResponse) (*roles, error) {
	r := &roles{term: status[0].RaftTerm, ids: map[*member]uint64{}}
	for i, st := range status {
		id := st.Header.GetMemberId()
		r.ids[members[i]] = id
		switch {
		case st.Leader == 0:
			return nil, errors.New("bench: a member has no leader")
		case st.Leader != status[0].Leader || st.RaftTerm != r.term:
			return nil, errors.New("bench: members do not agree who leads")
		case st.Leader == id:
			r.leader = members[i]
		default:
			r.followers = append(r.followers, members[i])
		}
	}
	if r.leader == nil {
		return nil, errors.New("bench: the leader is none of the members")
	}
	return r, nil
}

// level returns nil if all members have applied the same index. In an idle cluster, they eventually
// have.
func level(status []*pb.StatusResponse) error {
	for _, st := range status {
		if st.RaftAppliedIndex != status[0].RaftAppliedIndex {
			return fmt.Errorf("bench: one member has applied %d, another %d",
				status[0].RaftAppliedIndex, st.RaftAppliedIndex)
		}
	}
	return nil
}

// term returns the cluster's term, or 0 for servers without terms.
func (s *Server) term(ctx context.Context) (uint64, error) {
	if len(s.members) == 1 {
		return 0, nil
	}
	r, err := s.roles(ctx)
	if err != nil {
		return 0, err
	}
	return r.term, nil
}

// moveLeader transfers leadership to the next member, in a fixed cycle.
func (s *Server) moveLeader(ctx context.Context) error {
	r, err := s.roles(ctx)
	if err != nil {
		return err
	}
	next := s.members[(slices.Index(s.members, r.leader)+1)%len(s.members)]
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err = r.leader.maintenance().MoveLeader(ctx,
		&pb.MoveLeaderRequest{TargetID: r.ids[next]})
	if err != nil {
		return fmt.Errorf("move the leader: %w", err)
	}
	return nil
}

// revive restarts a killed member and waits until it has caught up.
func (s *Server) revive(ctx context.Context, m *member) error {
	m.wait()
	if err := m.start(); err != nil {
		return err
	}
	if err := m.waitReady(ctx); err != nil {
		return err
	}
	return s.caughtUp(ctx)
}

// caughtUp waits until all members agree on the leader and have applied the same index.
func (s *Server) caughtUp(ctx context.Context) error {
	return poll(ctx, time.Minute, func(ctx context.Context) error {
		status, err := s.status(ctx)
		if err != nil {
			return err
		}
		if _, err := agreed(s.members, status); err != nil {
			return err
		}
		return level(status)
	})
}

// poll calls f until it succeeds. If the limit elapses first, it returns the last error.
func poll(ctx context.Context, limit time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}
