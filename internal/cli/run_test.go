package cli

import (
	"strings"
	"testing"
)

// Goal: where no member can be reached, run says so with a code of its own, and does not
// run the command.
func TestRunUnreachable(t *testing.T) {
	var out, errs strings.Builder
	code := Main(Process{
		Args: []string{
			"run", "--lock", "a", "--endpoints", "127.0.0.1:1", "--command-timeout", "100ms", "--",
			"echo", "never",
		},
		Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs,
	})
	if code != exitNoCore || out.Len() != 0 || !strings.Contains(errs.String(), "unavailable") {
		t.Errorf("exit code %d, said %q, complained %q", code, out.String(), errs.String())
	}
}
