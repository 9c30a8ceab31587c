package cli

import (
	"bytes"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/authpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client/contrib/pool"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/members"
	"leasehold.dev/client/queue"
)

// Goal: no name, owner, label, ID or metadata that somebody has chosen moves the terminal of who
// lists it, in any format for people, and what is harmless stays as it is.
func TestNothingForTerminals(t *testing.T) {
	const evil = "a\x1b[2J\u009b31m\x7f\r\nb\xff"
	l := &pb.Lease{
		Id: 1, Name: evil, Owner: evil, Labels: map[string]string{evil: evil},
		Keys: [][]byte{[]byte(evil)}, Holds: []*pb.KeyRange{{Key: []byte(evil), RangeEnd: []byte("b")}},
	}
	for name, ans := range map[string]answer{
		"list":     showLeaseList(&pb.ListResponse{Leases: []*pb.Lease{l}}),
		"describe": showDescribed(&pb.DescribeResponse{Lease: l}),
		"event": showLeaseEvent(&leases.Event{
			Kind: leases.Revoked, By: evil, Lease: leases.Info{Name: evil, Owner: evil},
		}),
		"members": showMembers([]members.Member{{ID: evil, Metadata: []byte(evil)}}, 1),
		"joined": showMemberEvent(members.Event{
			Member: members.Member{ID: evil, Metadata: []byte(evil)},
		}),
		"items": showItems(nil, []queue.Info{{ID: evil, Worker: evil, Payload: []byte(evil)}}),
		"time to live": showTimeToLive(&clientv3.LeaseTimeToLiveResponse{
			GrantedTTL: 1, Keys: [][]byte{[]byte(evil)},
		}, true),
		"user":  showUserGet(evil, &clientv3.AuthUserGetResponse{Roles: []string{evil}}),
		"roles": showRoleList(&clientv3.AuthRoleListResponse{Roles: []string{evil}}),
		"role": showRoleGet(evil, &clientv3.AuthRoleGetResponse{Perm: []*authpb.Permission{
			{Key: []byte(evil)},
			{Key: []byte(evil), RangeEnd: []byte(clientv3.GetPrefixRangeEnd(evil))},
			{Key: []byte(evil), RangeEnd: []byte(evil + "b")},
		}}),
		"pool": showPool(1, []pool.Entry{{ID: evil, Owner: evil, Remaining: time.Second}}),
	} {
		for _, p := range []printer{&simplePrinter{}, fieldsPrinter{}, tablePrinter{}} {
			var b bytes.Buffer
			_ = p.print(&b, ans) // not all have all formats
			if i := strings.IndexFunc(b.String(), func(r rune) bool {
				return r != '\n' && r != '\t' && !strconv.IsPrint(r) || r == '\ufffd'
			}); i >= 0 {
				t.Errorf("%s, %T: %q", name, p, b.String())
			}
		}
	}
	for text, want := range map[string]string{
		"db/primary": "db/primary", "naïve 名": "naïve 名", "": "", "a\tb": `"a\tb"`,
	} {
		if got := readable(text); got != want {
			t.Errorf("%q is %s, want %s", text, got, want)
		}
	}
	if got := harmless("a\n\x1b[2J\u009b"); got != "a\n\\x1b[2J\\u009b" {
		t.Errorf("complained %q", got)
	}
}
