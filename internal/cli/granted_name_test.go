package cli

import (
	"io"
	"strings"
	"testing"

	"leasehold.dev/internal/cli/app"
)

// TestGrantedName checks that when a lease is granted under a name that other commands would parse
// as an ID, the output explains how to refer to that name.
func TestGrantedName(t *testing.T) {
	for name, want := range map[string]string{
		"db": "name:db", "cafe": "name:cafe", "8000000000000000": "name:8000000000000000",
		"name:x": "name:name:x", "db/1": "", "server": "",
	} {
		var errs strings.Builder
		Main(app.Process{
			Args: []string{
				"lease", "grant", "10", "--name", name, "--endpoints", "127.0.0.1:1",
				"--command-timeout", "1ms",
			},
			Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: &errs, Shared: true,
		})
		if warned := strings.Contains(errs.String(), "as an ID"); warned != (want != "") ||
			!strings.Contains(errs.String(), want+"\n") {
			t.Errorf("grant --name %s: %q", name, errs.String())
		}
		if want == "" {
			want = name
		}
		if r, err := app.ParseLeaseArg(want); err != nil || r.Name != name {
			t.Errorf("%s is read as %v, %v", want, r, err)
		}
	}
}
