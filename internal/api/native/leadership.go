package native

import pb "leasehold.dev/api/leasehold/v1"

// sendLeader sends the leader to the client, and returns a channel that is closed when the leader
// has changed. The leader's client addresses come from the state. If this member's state does not
// have them yet, the client gets them from the members that it knows.
func (t *stream) sendLeader() error {
	m := &pb.Leadership{MemberId: t.o.MemberID}
	m.LeaderId, t.leader = t.node.Leader()
	if leader, ok := t.node.View().Member(m.LeaderId); ok {
		m.LeaderClientUrls = leader.ClientURLs
	}
	return t.grpc.Send(&pb.ServerMessage{Leadership: m})
}
