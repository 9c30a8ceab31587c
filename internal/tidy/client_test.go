package tidy

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// clientNeeds are the modules that a program needs for the client: gRPC and protobuf, and what
// those two need.
var clientNeeds = []string{
	"leasehold.dev",
	"google.golang.org/grpc", "google.golang.org/protobuf",
	"google.golang.org/genproto/googleapis/api", "google.golang.org/genproto/googleapis/rpc",
	"golang.org/x/net", "golang.org/x/sys", "golang.org/x/text",
}

// serversOwn are packages of ours that a program gets with the client only by mistake.
var serversOwn = []string{
	"server", "internal/api", "internal/fsm", "internal/mvcc", "internal/replica", "internal/storage",
	"internal/transport", "internal/listen", "internal/cli", "internal/serve", "test",
}

// TestClientIsLight finds what a program that uses the client has to carry besides gRPC and
// protobuf.
func TestClientIsLight(t *testing.T) {
	const format = "{{.ImportPath}} {{with .Module}}{{.Path}}{{end}}"
	cmd := exec.Command("go", "list", "-deps", "-f", format, "./client/...")
	cmd.Dir = root(t)
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		path, module, _ := strings.Cut(strings.TrimSpace(line), " ")
		dir := strings.TrimPrefix(path, "leasehold.dev/")
		if module != "" && !slices.Contains(clientNeeds, module) {
			t.Errorf("the client imports %s of %s", path, module)
		}
		if slices.ContainsFunc(serversOwn, func(of string) bool { return within(dir, of) }) {
			t.Errorf("the client imports %s, which is a part of the server", path)
		}
	}
}
