package binding

import (
	"crypto/sha256"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
)

// TestDescribe checks that Describe returns the rules in file order. While the file is invalid, it
// returns the previous rules and the error. Without a file, no principal is bound.
func TestDescribe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "auth.yaml")
		write(t, path, good)
		b, err := Open(path, Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		want := &pb.ListBindingsResponse{
			File: path, Sha256: fmt.Sprintf("%x", sha256.Sum256([]byte(good))),
			LoadedUnixMs: time.Now().UnixMilli(),
			Issuers: []*pb.Issuer{{
				Name: "corp", Url: "https://login.example.com",
				Audiences: []string{"leasehold", "other"}, NameClaim: "email",
			}},
			Bindings: []*pb.Binding{
				{Spiffe: "spiffe://example.org/api", User: "api"},
				{Spiffe: "spiffe://example.org/prod/*", Roles: []string{"app", "reader"}},
				{Dns: "*.workers.example.org", Roles: []string{"worker"}},
				{
					Issuer: "corp", Claims: map[string]string{"groups": "ops", "verified": "true"},
					Roles: []string{"root"},
				},
			},
		}
		is := func(what string) {
			t.Helper()
			got := new(pb.ListBindingsResponse)
			if b.Describe(got); !proto.Equal(got, want) {
				t.Errorf("%s: got\n%v\nwant\n%v", what, got, want)
			}
		}
		reload := func(text string) {
			write(t, path, text)
			time.Sleep(time.Second)
			b.Reload()
		}
		is("at first")
		reload(good)
		is("after reloading the same file")

		reload(strings.Replace(good, "user: api", "usr: api", 1))
		want.LoadError = "--auth-config: " + path + `:13: unknown setting "usr" in an element of ` +
			`bindings; did you mean "user"?`
		is("with a mistake")

		other := strings.Replace(good, "user: api", "user: other", 1)
		reload(strings.Replace(other, "common-names: false", "common-names: true", 1))
		got := new(pb.ListBindingsResponse)
		b.Describe(got)
		want.LoadError, want.Sha256, want.CommonNames = "", got.Sha256, true
		want.Bindings[0].User, want.LoadedUnixMs = "other", time.Now().UnixMilli()
		if is("after the fix"); got.Sha256 == fmt.Sprintf("%x", sha256.Sum256([]byte(good))) {
			t.Error("a different file has the same digest")
		}

		b, want = nil, &pb.ListBindingsResponse{CommonNames: true}
		is("without a file")
	})
}
