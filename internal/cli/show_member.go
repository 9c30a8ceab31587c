package cli

import (
	"fmt"
	"strconv"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// memberHead names the columns of member list.
var memberHead = []string{
	"ID", "Status", "Name", "Peer Addrs", "Client Addrs", "Is Learner",
}

func memberRow(m *pb.Member) []string {
	status := "started"
	if m.GetName() == "" {
		status = "unstarted"
	}
	return []string{
		fmt.Sprintf("%x", m.GetID()),
		status,
		readable(m.GetName()),
		strings.Join(m.GetPeerURLs(), ","),
		strings.Join(m.GetClientURLs(), ","),
		strconv.FormatBool(m.GetIsLearner()),
	}
}

func showMemberList(resp *clientv3.MemberListResponse) answer {
	r := (*pb.MemberListResponse)(resp)
	rows := func() (rows [][]string) {
		for _, m := range r.GetMembers() {
			rows = append(rows, memberRow(m))
		}
		return rows
	}
	return answer{
		json: r, jsonHex: hexMembership(r.GetHeader(), r.GetMembers()), proto: r,
		simple: func(p *page) { p.rows(rows()) },
		fields: func(p *page) {
			p.header(r.GetHeader())
			for _, m := range r.GetMembers() {
				p.memberFields(m)
			}
		},
		table: func() ([]string, [][]string) { return memberHead, rows() },
	}
}

func (p *page) memberFields(m *pb.Member) {
	p.memberID("ID", m.GetID())
	p.quoted("Name", m.GetName())
	for _, u := range m.GetPeerURLs() {
		p.quoted("PeerURL", u)
	}
	for _, u := range m.GetClientURLs() {
		p.quoted("ClientURL", u)
	}
	p.field("IsLearner", m.GetIsLearner())
	p.printf("\n")
}

// showMemberAdd also prints what the new member must be started with.
func showMemberAdd(resp *clientv3.MemberAddResponse, name, peerURLs string) answer {
	r := (*pb.MemberAddResponse)(resp)
	hex := hexMembership(r.GetHeader(), r.GetMembers())
	return answer{json: r, proto: r, jsonHex: &struct {
		Header  *headerHex   `json:"header"`
		Member  *memberHex   `json:"member"`
		Members []*memberHex `json:"members"`
	}{hex.Header, hexMember(r.GetMember()), hex.Members}, simple: func(p *page) {
		as := " "
		if r.GetMember().GetIsLearner() {
			as = " as learner "
		}
		p.printf("Member %16x added%sto cluster %16x\n",
			r.GetMember().GetID(), as, r.GetHeader().GetClusterId())
		var cluster []string
		for _, m := range r.GetMembers() {
			n := m.GetName()
			if m.GetID() == r.GetMember().GetID() {
				n = name
			}
			for _, u := range m.GetPeerURLs() {
				cluster = append(cluster, n+"="+u)
			}
		}
		p.printf("\nETCD_NAME=%q\n", name)
		p.printf("ETCD_INITIAL_CLUSTER=%q\n", strings.Join(cluster, ","))
		p.printf("ETCD_INITIAL_ADVERTISE_PEER_URLS=%q\n", peerURLs)
		p.printf("ETCD_INITIAL_CLUSTER_STATE=\"existing\"\n")
	}}
}

// membership is the part that the answers to all membership calls share.
type membership interface {
	GetHeader() *pb.ResponseHeader
	GetMembers() []*pb.Member
}

func showMemberChange(r membership, format string, id uint64) answer {
	return answer{
		json: r, proto: r, jsonHex: hexMembership(r.GetHeader(), r.GetMembers()),
		simple: func(p *page) { p.printf(format, id, r.GetHeader().GetClusterId()) },
	}
}

func showMemberRemove(id uint64, r *clientv3.MemberRemoveResponse) answer {
	return showMemberChange((*pb.MemberRemoveResponse)(r),
		"Member %16x removed from cluster %16x\n", id)
}

func showMemberUpdate(id uint64, r *clientv3.MemberUpdateResponse) answer {
	return showMemberChange((*pb.MemberUpdateResponse)(r),
		"Member %16x updated in cluster %16x\n", id)
}

func showMemberPromote(id uint64, r *clientv3.MemberPromoteResponse) answer {
	return showMemberChange((*pb.MemberPromoteResponse)(r),
		"Member %16x promoted in cluster %16x\n", id)
}

func showMoveLeader(leader, target uint64, resp *clientv3.MoveLeaderResponse) answer {
	r := (*pb.MoveLeaderResponse)(resp)
	return answer{json: r, proto: r, simple: func(p *page) {
		if leader == target {
			p.printf("Member %x leads already\n", leader)
			return
		}
		p.printf("Leadership transferred from %x to %x\n", leader, target)
	}}
}

// The types below are the JSON of members under --hex.
type (
	headerHex struct {
		ClusterID string `json:"cluster_id"`
		MemberID  string `json:"member_id"`
		Revision  int64  `json:"revision,omitempty"`
		RaftTerm  uint64 `json:"raft_term,omitempty"`
	}
	memberHex struct {
		ID         string   `json:"ID"`
		Name       string   `json:"name,omitempty"`
		PeerURLs   []string `json:"peerURLs,omitempty"`
		ClientURLs []string `json:"clientURLs,omitempty"`
		IsLearner  bool     `json:"isLearner,omitempty"`
	}
	membershipHex struct {
		Header  *headerHex   `json:"header"`
		Members []*memberHex `json:"members"`
	}
)

func hexMembership(h *pb.ResponseHeader, members []*pb.Member) *membershipHex {
	out := &membershipHex{
		Header: &headerHex{
			ClusterID: fmt.Sprintf("%x", h.GetClusterId()),
			MemberID:  fmt.Sprintf("%x", h.GetMemberId()),
			Revision:  h.GetRevision(),
			RaftTerm:  h.GetRaftTerm(),
		},
		Members: []*memberHex{},
	}
	for _, m := range members {
		out.Members = append(out.Members, hexMember(m))
	}
	return out
}

func hexMember(m *pb.Member) *memberHex {
	return &memberHex{
		ID:         fmt.Sprintf("%x", m.GetID()),
		Name:       m.GetName(),
		PeerURLs:   m.GetPeerURLs(),
		ClientURLs: m.GetClientURLs(),
		IsLearner:  m.GetIsLearner(),
	}
}
