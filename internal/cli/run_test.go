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

// Goal: commands that run others say by a code which no command has that their arguments are
// wrong, and what to do with the flags that are about TLS.
func TestWrongArguments(t *testing.T) {
	away := []string{"--endpoints", "https://127.0.0.1:1", "--command-timeout", "100ms"}
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"run", "--lock", "a", "--bogus", "--", "x"}, exitBadArgs, "--bogus"},
		{[]string{"run", "--lock", "a", "--ttl", "x", "--", "x"}, exitBadArgs, "--ttl"},
		{[]string{"run", "--", "x"}, exitBadArgs, "--lock or --elect"},
		{[]string{"run", "--lock", "a"}, exitBadArgs, "after --"},
		{[]string{"queue", "work", "q", "--idle", "--", "x"}, exitBadArgs, "--idle-exit"},
		{[]string{"queue", "work", "q"}, exitBadArgs, "a command after --"},
		{[]string{"pool", "acquire", "p", "--bogus", "--", "x"}, exitBadArgs, "--bogus"},
		{[]string{"pool", "acquire"}, exitBadArgs, "takes a pool"},
		{[]string{"members", "register", "g", "m", "--ttl", "x"}, exitBadArgs, "--ttl"},
		{[]string{"members", "register", "g"}, exitBadArgs, "a group and an ID"},
		{
			append([]string{"queue", "push", "q", "x", "--cacert", "/no/such"}, away...),
			exitBadArgs, "/no/such",
		},
		{append([]string{"queue", "push", "q", "x"}, away...), exitFailure, "unavailable"},
		{append([]string{"members", "register", "g", "m"}, away...), exitNoCore, "unavailable"},
		{append([]string{"pool", "acquire", "p"}, away...), exitNoCore, "unavailable"},
	} {
		var out, errs strings.Builder
		code := Main(Process{
			Args: tt.args, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs,
		})
		if code != tt.code || out.Len() != 0 || !strings.Contains(errs.String(), tt.want) {
			t.Errorf("%q: exit code %d, said %q, complained %q",
				tt.args, code, out.String(), errs.String())
		}
	}
}
