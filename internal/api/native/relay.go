package native

import (
	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api/relayed"
	"leasehold.dev/internal/channel"
	"leasehold.dev/internal/holder"
	"leasehold.dev/internal/replica"
	"leasehold.dev/lease"
)

var _ relayed.Keeper = (*streams)(nil)

// TakeGroups implements relayed.Keeper.
func (s *streams) TakeGroups(l *channel.Link) (end func()) {
	by := lastKeeper.Add(1)
	l.TakeGroups(by, func(_ *channel.Channel, f *pb.RelayFrame) {
		if f.Round != nil {
			s.round(l, replica.Keeper(by), f.Round)
		}
	})
	return func() { s.node.EndKeeper(replica.Keeper(by)) }
}

// round renews groups for a relay. If that is not possible, the outcome lists no groups, and the
// relay makes its clients renew their leases individually.
func (s *streams) round(l *channel.Link, by replica.Keeper, r *pb.RelayRound) {
	// The header predates the renewals; see leases.renew.
	o := &roundOutcome{link: l, header: s.headerNow()}
	o.asks.Owner, o.asks.Keeper, o.asks.Number, o.asks.Fresh = o, by, r.Number, r.ResetGroups
	fits := len(r.Leave) == len(r.LeaveGroups) && len(r.Leave) == len(r.LeaveAsOf) &&
		len(r.Leave) <= holder.MaxLeave && len(r.Groups) <= replica.MaxGroups
	for i := 0; fits && i < len(r.Leave); i++ {
		o.asks.Leave = append(o.asks.Leave, holder.Leaving{
			ID: lease.ID(r.Leave[i]), Group: lease.GroupID(r.LeaveGroups[i]),
			AsOf: lease.Instant(r.LeaveAsOf[i]),
		})
	}
	for _, g := range r.Groups {
		o.asks.Renew = append(o.asks.Renew, lease.GroupID(g))
	}
	if !fits || len(r.Leave)+len(r.Groups) == 0 {
		o.RenewedGroups()
		return
	}
	// If the round includes leaves, send no outcome. The relay then ends all groups, so no leave is
	// lost.
	if err := s.node.RenewAll(&o.asks); err != nil && len(r.Leave) == 0 {
		o.RenewedGroups()
	}
}

// roundOutcome creates the outcome of a round. It implements RenewedAll.
type roundOutcome struct {
	link   *channel.Link
	header *pb.Header
	asks   replica.Renewals
}

// RenewedGroups implements RenewedAll.
func (o *roundOutcome) RenewedGroups() {
	out := &pb.RelayRoundOutcome{Number: o.asks.Number, Header: o.header}
	for _, g := range o.asks.Renewed {
		its := &pb.RelayGroup{Id: uint64(g.ID), TtlMs: int64(g.TTL), AtMs: int64(g.At)}
		for _, id := range g.Left {
			its.Left = append(its.Left, int64(id))
		}
		out.Groups = append(out.Groups, its)
	}
	o.link.SendGroups(&pb.RelayFrame{Outcome: out})
}

// RenewedTogether implements RenewedAll. It does nothing, because a round does not renew leases
// individually.
func (o *roundOutcome) RenewedTogether() {}

// RenewedOne implements RenewedAll.
func (o *roundOutcome) RenewedOne(int, lease.TTL, error) {}
