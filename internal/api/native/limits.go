package native

import (
	"cmp"
	"context"
	"slices"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/access"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/lease"
)

// holderOf returns the user or role to which limits apply. The zero value means everyone.
func holderOf(user, role string) (access.Holder, error) {
	switch {
	case user != "" && role != "":
		return access.Holder{}, invalid("limits apply to either a user or a role: set only one")
	case user != "":
		return access.Holder{Kind: access.OfUser, Name: user}, checkText("user", user)
	case role != "":
		return access.Holder{Kind: access.OfRole, Name: role}, checkText("role", role)
	default:
		return access.Holder{}, nil
	}
}

// SetLimits implements pb.AccessServiceServer.
func (s names) SetLimits(
	ctx context.Context, r *pb.SetLimitsRequest,
) (*pb.SetLimitsResponse, error) {
	of, err := holderOf(r.GetLimits().GetUser(), r.GetLimits().GetRole())
	if err != nil {
		return nil, err
	}
	c := &fsm.SetLimits{Of: of}
	for _, l := range r.GetLimits().GetLimits() {
		what := access.Resource(l.GetResource() - 1)
		switch {
		case l.GetResource() < 1 || !what.Known():
			return nil, invalid("resource %d is unknown", l.GetResource())
		case l.GetMax() < access.NoLimit:
			return nil, invalid("a limit must be positive, 0 to remove it, or -1 for unlimited, not %d",
				l.GetMax())
		case slices.ContainsFunc(c.List, func(x access.LimitChange) bool { return x.What == what }):
			return nil, invalid("the limit on %v is set twice", what)
		}
		c.List = append(c.List, access.LimitChange{What: what, Most: l.GetMax()})
	}
	if len(c.List) == 0 {
		return nil, invalid("no limit is set")
	}
	res, err := s.propose(ctx, c)
	if err != nil {
		return nil, err
	}
	return &pb.SetLimitsResponse{Header: s.header(s.node.View(), res.Revision)}, nil
}

// ListLimits implements pb.AccessServiceServer.
func (s names) ListLimits(
	ctx context.Context, r *pb.ListLimitsRequest,
) (*pb.ListLimitsResponse, error) {
	of, err := holderOf(r.GetUser(), r.GetRole())
	if err != nil {
		return nil, err
	}
	v, err := s.viewOfRoot(ctx, nil)
	if err != nil {
		return nil, err
	}
	// Buffered, because the core may send to it after this call has ended.
	found := make(chan []fsm.Use, 1)
	wants := r.GetRole() == ""
	if wants { // root only, because it takes up the core's time
		if v, err = s.viewOfRoot(ctx, func(*lease.Lessor) { found <- s.node.Uses() }); err != nil {
			return nil, err
		}
	}
	resp := &pb.ListLimitsResponse{Header: s.header(v, v.KV.Revision())}
	holders := v.Access.LimitHolders()
	if of != (access.Holder{}) {
		holders = []access.Holder{of}
	}
	for _, h := range holders {
		if m := limitsMessage(v.Access, h); len(m.Limits) > 0 {
			resp.Limits = append(resp.Limits, m)
		}
	}
	if wants {
		resp.Usages = usesMessages(<-found, r.GetUser())
	}
	return resp, nil
}

func limitsMessage(by *access.State, of access.Holder) *pb.Limits {
	m := &pb.Limits{}
	switch of.Kind {
	case access.OfUser:
		m.User = of.Name
	case access.OfRole:
		m.Role = of.Name
	}
	l := by.Limits(of)
	for _, c := range l.Changes() {
		m.Limits = append(m.Limits, &pb.Limit{
			Resource: pb.Limit_Resource(c.What) + 1, Max: c.Most,
		})
	}
	return m
}

// usesMessages converts the usage of all principals or, if only is set, of that principal.
func usesMessages(all []fsm.Use, only string) (out []*pb.Usage) {
	for _, u := range all {
		if only == "" || u.Principal == only {
			out = append(out, &pb.Usage{
				Principal: u.Principal, Leases: u.Leases, LeaseKeys: u.LeaseKeys, Bytes: u.Bytes,
			})
		}
	}
	slices.SortFunc(out, func(a, b *pb.Usage) int { return cmp.Compare(a.Principal, b.Principal) })
	return out
}
