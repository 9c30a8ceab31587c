package access

import (
	"strings"
	"testing"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/internal/cli/app"
)

// TestShowBindings checks that a rejected file is shown with the reason, and that rules that differ
// between members are shown individually. The contents of a file are escaped for the terminal.
func TestShowBindings(t *testing.T) {
	at := func(endpoint, digest, refused, who string) boundAt {
		return boundAt{Endpoint: endpoint, decoded: &pb.ListBindingsResponse{
			File: "auth.yaml", Sha256: digest, LoadError: refused,
			Bindings: []*pb.Binding{{Dns: who, User: "u"}},
		}}
	}
	one, two := at("e1", "aa", "auth.yaml:3: no\x1b[2J", "one"), at("e2", "bb", "", "two")
	p := &app.Page{}
	showBindings([]boundAt{one, two, at("e3", "aa", "", "one")}).Simple(p)
	got := p.String()
	for want, n := range map[string]int{
		"auth.yaml:3: no": 1, "\x1b": 0, "Digest aa\n": 1, "Digest bb\n": 1,
		"dns:one": 1, "dns:two": 1, "e1": 1, "e2": 1, "e3": 1,
	} {
		if strings.Count(got, want) != n {
			t.Errorf("%q is not there %d times:\n%s", want, n, got)
		}
	}
	if !allEqual(nil) || !allEqual([]boundAt{one}) || allEqual([]boundAt{one, two}) {
		t.Error("it is not told whether members are alike")
	}
}
