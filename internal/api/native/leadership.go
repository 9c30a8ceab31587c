package native

import pb "leasehold.dev/api/leasehold/v1"

// tellLeader says to the client who leads, and returns what is closed when that has changed.
// Where the leader serves clients is in the state, which may not have come so far yet: then
// the client learns of it by asking the members that it knows.
func (t *stream) tellLeader() error {
	m := &pb.Leadership{MemberId: t.o.MemberID}
	m.LeaderId, t.leader = t.node.Leader()
	if leader, ok := t.node.View().Member(m.LeaderId); ok {
		m.LeaderClientUrls = leader.ClientURLs
	}
	return t.grpc.Send(&pb.ServerMessage{Leadership: m})
}
