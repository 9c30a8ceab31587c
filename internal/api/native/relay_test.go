package native

import (
	"io"
	"testing"
	"testing/synctest"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/api"
	"leasehold.dev/internal/channel"
	"leasehold.dev/internal/holder"
	"leasehold.dev/internal/replica"
)

// relayEnd is the relay's side of a link.
type relayEnd struct {
	rounds   chan []*pb.RelayFrame
	outcomes chan []*pb.RelayFrame
}

// Send implements channel.Stream.
func (r relayEnd) Send(m []*pb.RelayFrame) error { r.outcomes <- m; return nil }

// Recv implements channel.Stream.
func (r relayEnd) Recv() ([]*pb.RelayFrame, error) {
	if m, ok := <-r.rounds; ok {
		return m, nil
	}
	return nil, io.EOF
}

// roundsNode is a node that accepts or rejects rounds.
type roundsNode struct {
	*fakeNode
	refuses error
	taken   []*replica.Renewals
}

// RenewAll implements Node.
func (n *roundsNode) RenewAll(r *replica.Renewals) error {
	if n.refuses == nil {
		n.taken = append(n.taken, r)
	}
	return n.refuses
}

// EndKeeper implements Node.
func (n *roundsNode) EndKeeper(replica.Keeper) {}

// TestRounds checks that a round that exceeds the relay's limits, or that the core rejects, has an
// outcome without groups. But a round in which leases leave their groups gets no
// outcome if the core rejects it: the relay then ends its groups, so no leave is lost.
func TestRounds(t *testing.T) {
	const leaves, groups = holder.MaxLeave, replica.MaxGroups
	for name, x := range map[string]struct {
		leaves, groups int
		refuses        error
		taken, outcome bool
	}{
		"largest":         {leaves: leaves, groups: groups, taken: true},
		"too many leaves": {leaves: leaves + 1, outcome: true},
		"too many groups": {groups: groups + 1, outcome: true},
		"refused":         {groups: 1, refuses: api.ErrTooManyRequests, outcome: true},
		"refused leaves":  {leaves: 1, groups: 1, refuses: api.ErrTooManyRequests},
	} {
		synctest.Test(t, func(t *testing.T) {
			n := &roundsNode{fakeNode: newNode(), refuses: x.refuses}
			s := &streams{store: &store{leases: service(n, Options{}).leases, node: n}}
			relay := relayEnd{make(chan []*pb.RelayFrame), make(chan []*pb.RelayFrame, 1)}
			l := channel.New(relay, 1<<20, nil)
			defer s.TakeGroups(l)()
			go func() { _ = l.Run(t.Context()) }()
			r := &pb.RelayRound{
				Number: 1, Leave: make([]int64, x.leaves), LeaveGroups: make([]uint64, x.leaves),
				LeaveAsOf: make([]int64, x.leaves), Groups: make([]uint64, x.groups),
			}
			relay.rounds <- []*pb.RelayFrame{{Round: r}}
			synctest.Wait()
			if len(n.taken) == 1 != x.taken || x.taken && len(n.taken[0].Leave) != x.leaves {
				t.Errorf("%s: the core has taken %d rounds", name, len(n.taken))
			}
			select {
			case m := <-relay.outcomes:
				if o := m[0].GetOutcome(); !x.outcome || o.GetNumber() != 1 || len(o.GetGroups()) > 0 {
					t.Errorf("%s: the outcome is %v", name, o)
				}
			default:
				if x.outcome {
					t.Errorf("%s: there is no outcome", name)
				}
			}
			close(relay.rounds)
		})
	}
}
