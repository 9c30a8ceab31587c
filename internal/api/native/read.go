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
				err = cmp.Or(s.asker(ctx).looksFor(r.Name), err)
			}
			if err != nil {
				return nil, err
			}
			id = held.ID
		}
		var seen api.Held
		a := s.asker(ctx)
		var m *pb.Lease
		other := false // another lease has the name by now
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
				seen = a.look(l, &info)
			})
		switch {
		case err != nil:
			return nil, err
		case other:
			continue
		case m == nil:
			return nil, cmp.Or(a.known(), lease.ErrNotFound)
		}
		if a = s.asker(ctx); a.By.Enabled() {
			if err := a.looksAt(seen, r.Name); err != nil {
				return nil, err
			}
			a.cut(m)
		}
		return &pb.DescribeResponse{Header: s.headerNow(), Lease: m}, nil
	}
}

// named finds the lease that has a name.
func (s *leases) named(ctx context.Context, name string) (lease.Info, error) {
	var info lease.Info
	found := false
	err := s.node.Inspect(ctx, func(l *lease.Lessor) { info, found = l.ByName(name) })
	switch {
	case err != nil:
		return lease.Info{}, err // and info may still be written
	case !found:
		return lease.Info{}, &fsm.UnnamedError{Name: name}
	}
	return info, nil
}

// message returns what there is to tell of a lease, of which the leader says what is
// left; nil if it is gone, here or there: one of the two is newer. Whether it is delayed goes by
// what is left: that of a lease which lived is nothing of a lock delay that has begun since.
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

// checkToken reports whether a token is its lease's current one. A token is valid until the end of
// its lease is in the log, and so in the state after a confirm round, whatever the leader's timers
// say.
func (s *leases) checkToken(
	ctx context.Context, r *pb.CheckTokenRequest,
) (*pb.CheckTokenResponse, error) {
	if err := checkOne(r.Id, r.Name); err != nil {
		return nil, err
	}
	if r.Token == 0 {
		return nil, invalid("the token to check must be given")
	}
	var info lease.Info
	var seen api.Held
	found := false
	a := s.asker(ctx) // until all is told: after an error the function below may still run
	err := s.node.Inspect(ctx, func(l *lease.Lessor) {
		if r.Name != "" {
			info, found = l.ByName(r.Name)
		} else {
			info, found = l.Lookup(lease.ID(r.Id))
		}
		seen = a.look(l, &info)
	})
	if err != nil {
		return nil, err
	}
	switch a := s.asker(ctx); {
	case !a.By.Enabled():
	case found:
		err = a.looksAt(seen, r.Name)
	default:
		err = a.looksFor(r.Name)
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
