package server

import (
	"path/filepath"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/test/virtual"
)

// TestListBindings checks that every member, leader or follower, lists its own bindings, and that a
// relay lists the bindings of the member it is connected to. Only root can list them.
func TestListBindings(t *testing.T) { virtual.Test(t, testListBindings) }

func testListBindings(t *testing.T) {
	configs := clusterConfigs(t, 3)
	corp := newIssuer(t)
	files := []string{bindingsFor(corp), "bindings: [{dns: a.example.org, user: alice}]", ""}
	for i := range configs {
		configs[i].Access.BcryptCost, configs[i].Access.MinPassword = cheap, 0
		if files[i] != "" {
			path := filepath.Join(t.TempDir(), "b")
			configs[i].Access.BindingsFile = writeBindings(t, path, files[i])
		}
	}
	members := runAll(t, configs...)
	withUsersAtAll(t, members)
	withRelay(t, members[1])
	behind, _ := relayOf(t, members[1], newCertificates(t))
	ask := func(socket, token string) (*pb.ListBindingsResponse, error) {
		ctx := metadata.AppendToOutgoingContext(t.Context(), "token", token)
		return pb.NewAccessServiceClient(dial(t, socket, nil)).ListBindings(
			ctx, &pb.ListBindingsRequest{})
	}
	for name, x := range map[string]struct {
		socket string
		at     int
		rules  int
	}{
		"the first":    {members[0].cfg.URLs.ListenClient[0].Path, 0, 5},
		"the second":   {members[1].cfg.URLs.ListenClient[0].Path, 1, 1},
		"the third":    {members[2].cfg.URLs.ListenClient[0].Path, 2, 0},
		"by the relay": {behind, 1, 1},
	} {
		m := members[x.at]
		got, err := ask(x.socket, m.token(t, "root"))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got.Header.MemberId != m.node.member || len(got.Bindings) != x.rules ||
			got.File != m.cfg.Access.BindingsFile || !got.CommonNames {
			t.Errorf("%s tells %v", name, got)
		}
		for user, token := range map[string]string{
			"alice": m.token(t, "alice"), "bob": corp.Token(t, "k", "bob", writers), "nobody": "",
		} {
			got, err := ask(x.socket, token)
			if c := status.Code(err); c != codes.PermissionDenied && c != codes.Unauthenticated {
				t.Errorf("%s tells %s %v, %v", name, user, got, err)
			}
		}
	}
}
