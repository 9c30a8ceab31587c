package native

import pb "leasehold.dev/api/leasehold/v1"

// sendLeader sends the current leader to the client. It also stores a channel that is closed when
// the leader changes. The leader's client addresses come from this member's state. If the state
// does not contain them yet, the client has to ask the members that it knows.
func (t *stream) sendLeader() error {
	m := &pb.Leadership{MemberId: t.o.MemberID}
	m.LeaderId, t.leader = t.node.Leader()
	if leader, ok := t.node.View().Member(m.LeaderId); ok {
		m.LeaderClientUrls = leader.ClientURLs
	}
	return t.grpc.Send(&pb.ServerMessage{Leadership: m})
}
