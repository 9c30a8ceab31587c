package native

import (
	"cmp"
	"context"
	"errors"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/listen"
	"leasehold.dev/internal/replica"
	"leasehold.dev/lease"
)

func (s *leases) describe(
	ctx context.Context, r *pb.DescribeRequest,
) (*pb.DescribeResponse, error) {
	if err := checkOne(r.Id, r.Name); err != nil {
		return nil, err
	}
	if r.Keys {
		if err := listen.Room(ctx); err != nil {
			return nil, err
		}
	}
	id := lease.ID(r.Id)
	for {
		if r.Name != "" {
			held, err := s.named(ctx, r.Name)
			if errors.Is(err, lease.ErrNotFound) {
				err = cmp.Or(s.authorizer(ctx).checkName(r.Name), err)
			}
			if err != nil {
				return nil, err
			}
			id = held.ID
		}
		var seen api.Held
		a := s.authorizer(ctx)
		var m *pb.Lease
		other := false // whether another lease has taken over the name
		err := s.node.InspectLeases(ctx, []lease.ID{id},
			func(l *lease.Lessor, left []replica.Left) {
				if r.Name != "" {
					held, ok := l.ByName(r.Name)
					other = ok && held.ID != id
				}
				if m = message(l, id, left[0], r.Keys); m != nil {
					m.Holds = rangeMessages(s.node.Holds(id))
				}
				info, _ := l.Lookup(id)
				seen = a.heldInfo(l, &info)
			})
		switch {
		case err != nil:
			return nil, err
		case other:
			continue
		case m == nil:
			return nil, cmp.Or(a.checkLogin(), lease.ErrNotFound)
		}
		if a = s.authorizer(ctx); a.State.Enabled() {
			if err := a.checkSee(seen, r.Name); err != nil {
				return nil, err
			}
			a.redact(m)
		}
		return &pb.DescribeResponse{Header: s.headerNow(), Lease: m}, nil
	}
}

// named returns the lease with the given name.
func (s *leases) named(ctx context.Context, name string) (lease.Info, error) {
	var info lease.Info
	found := false
	err := s.node.Inspect(ctx, func(l *lease.Lessor) { info, found = l.ByName(name) })
	switch {
	case err != nil:
		return lease.Info{}, err // Inspect may still be writing to info
	case !found:
		return lease.Info{}, &fsm.UnnamedError{Name: name}
	}
	return info, nil
}

// message converts a lease, using the remaining time reported by the leader. It returns nil if the
// lease has ended according to this member or the leader, whichever is newer. It also uses the
// leader's report to determine whether the lease is delayed. Otherwise, the remaining time of a
// live lease could be mistaken for the remaining time of a lock delay that started in the meantime.
func message(l *lease.Lessor, id lease.ID, left replica.Left, keys bool) *pb.Lease {
	info, ok := l.Lookup(id)
	if !ok || !left.Found && left.TTL == 0 && !info.Delayed {
		return nil
	}
	m := api.LeaseMessage(&info)
	m.RemainingMs = int64(left.TTL)
	m.Delayed = !left.Found
	m.KeyCount = int64(l.KeyCount(id))
	if keys {
		m.Keys = keysOf(l, id)
	}
	return m
}

func keysOf(l *lease.Lessor, id lease.ID) [][]byte {
	var out [][]byte
	for _, k := range l.Keys(id) {
		out = append(out, []byte(k))
	}
	return out
}

// checkToken reports whether a token is its lease's current one. A token is valid until the log
// records that its lease has ended or has a new token, regardless of the leader's timers. After a
// confirm round, the state includes everything that the log had recorded when the call began.
func (s *leases) checkToken(
	ctx context.Context, r *pb.CheckTokenRequest,
) (*pb.CheckTokenResponse, error) {
	if err := checkOne(r.Id, r.Name); err != nil {
		return nil, err
	}
	if r.Token == 0 {
		return nil, invalid("token is required")
	}
	var info lease.Info
	var seen api.Held
	found := false
	a := s.authorizer(ctx) // declared separately, because Inspect may still call f after an error
	err := s.node.Inspect(ctx, func(l *lease.Lessor) {
		if r.Name != "" {
			info, found = l.ByName(r.Name)
		} else {
			info, found = l.Lookup(lease.ID(r.Id))
		}
		seen = a.heldInfo(l, &info)
	})
	if err != nil {
		return nil, err
	}
	switch a := s.authorizer(ctx); {
	case !a.State.Enabled():
	case found:
		err = a.checkSee(seen, r.Name)
	default:
		err = a.checkName(r.Name)
	}
	if err != nil {
		return nil, err
	}
	resp := &pb.CheckTokenResponse{Header: s.headerNow()}
	if found && !info.Delayed {
		resp.Current = uint64(info.Token)
		resp.Valid = resp.Current == r.Token
	}
	return resp, nil
}
