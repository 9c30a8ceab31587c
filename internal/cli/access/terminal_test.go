package access

import (
	"testing"

	"go.etcd.io/etcd/api/v3/authpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"leasehold.dev/internal/cli/app"
	"leasehold.dev/test/apptest"
)

// TestNothingForTerminals checks that escape sequences in the names of users, roles and keys, which
// other clients choose, do not reach the terminal.
func TestNothingForTerminals(t *testing.T) {
	const evil = apptest.Evil
	apptest.Harmless(t, map[string]app.Answer{
		"user":  showUserGet(evil, &clientv3.AuthUserGetResponse{Roles: []string{evil}}),
		"roles": showRoleList(&clientv3.AuthRoleListResponse{Roles: []string{evil}}),
		"role": showRoleGet(evil, &clientv3.AuthRoleGetResponse{Perm: []*authpb.Permission{
			{Key: []byte(evil)},
			{Key: []byte(evil), RangeEnd: []byte(clientv3.GetPrefixRangeEnd(evil))},
			{Key: []byte(evil), RangeEnd: []byte(evil + "b")},
		}}),
	})
}
