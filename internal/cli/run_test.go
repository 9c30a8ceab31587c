package cli

import (
	"io"
	"slices"
	"strings"
	"testing"

	"leasehold.dev/internal/cli/app"
	"leasehold.dev/test/inprocess"
)

// TestRunUnreachable checks that run exits with a specific code and does not run the command if no
// member is reachable.
func TestRunUnreachable(t *testing.T) {
	var out, errs strings.Builder
	code := Main(app.Process{
		Args: []string{
			"run", "--lock", "a", "--endpoints", "127.0.0.1:1", "--command-timeout", "100ms", "--",
			"echo", "never",
		},
		Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs,
	})
	if code != app.ExitNoCore || out.Len() != 0 || !strings.Contains(errs.String(), "unavailable") {
		t.Errorf("exit code %d, said %q, complained %q", code, out.String(), errs.String())
	}
}

// TestWrongArguments checks that when commands that run a child get wrong arguments, they exit with
// a code that cannot come from the child, and give advice about TLS flags.
func TestWrongArguments(t *testing.T) {
	away := []string{"--endpoints", "https://127.0.0.1:1", "--command-timeout", "100ms"}
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"run", "--lock", "a", "--bogus", "--", "x"}, app.ExitBadArgs, "--bogus"},
		{[]string{"run", "--lock", "a", "--ttl", "x", "--", "x"}, app.ExitBadArgs, "--ttl"},
		{[]string{"run", "--", "x"}, app.ExitBadArgs, "--lock or --elect"},
		{[]string{"run", "--lock", "a", "sh", "-c", "x"}, app.ExitBadArgs, "with its flags, after --"},
		{[]string{"run", "--lock", "a", "--wait", "-1s", "--", "x"}, app.ExitBadArgs, "--wait must"},
		{
			[]string{"run", "--lock", "a", "--min-hold", "2500001h", "--", "x"},
			app.ExitBadArgs, "--min-hold must",
		},
		{[]string{"run", "--lock", "a", "--term-before", "-1s", "--", "x"}, app.ExitBadArgs, "--term-b"},
		{[]string{"help", "nosuch"}, app.ExitFailure, `unknown command "nosuch"`},
		{[]string{"help", "lease", "nosuch"}, app.ExitFailure, `unknown command "nosuch"`},
		{[]string{"get", "x", "--endpoints", "10.0.0.1"}, app.ExitBadArgs, "has no port"},
		{[]string{"get", "x", "--endpoints", "::1:2379"}, app.ExitBadArgs, "such as [::1]:2379"},
		{[]string{"run", "--lock", "a", "--endpoints", "a", "--", "x"}, app.ExitBadArgs, "has no port"},
		{
			append([]string{"lease", "keep-alive", "7", "--dial-timeout", "1ms"}, away[0], "127.0.0.1:1",
				away[2], away[3]),
			app.ExitConnection, "may have expired",
		},
		{[]string{"run", "--lock", "a"}, app.ExitBadArgs, "after --"},
		{[]string{"queue", "work", "q", "--idle", "--", "x"}, app.ExitBadArgs, "--idle-exit"},
		{[]string{"queue", "work", "q"}, app.ExitBadArgs, "usage: leasehold queue work"},
		{[]string{"pool", "acquire", "p", "--bogus", "--", "x"}, app.ExitBadArgs, "--bogus"},
		{[]string{"pool", "acquire"}, app.ExitBadArgs, "usage: leasehold pool"},
		{[]string{"group", "register", "g", "m", "--ttl", "x"}, app.ExitBadArgs, "--ttl"},
		{[]string{"group", "register", "g"}, app.ExitBadArgs, "usage: leasehold group"},
		{
			append([]string{"queue", "push", "q", "x", "--cacert", "/no/such"}, away...),
			app.ExitBadArgs, "/no/such",
		},
		{append([]string{"queue", "push", "q", "x"}, away...), app.ExitFailure, "unavailable"},
		{append([]string{"group", "register", "g", "m"}, away...), app.ExitNoCore, "unavailable"},
		{append([]string{"pool", "acquire", "p"}, away...), app.ExitNoCore, "unavailable"},
		{append([]string{"group", "watch", "g"}, away...), app.ExitConnection, "unavailable"},
		{append([]string{"lease", "watch"}, away...), app.ExitConnection, "unavailable"},
	} {
		var out, errs strings.Builder
		code := Main(app.Process{
			Args: tt.args, Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs,
		})
		if code != tt.code || out.Len() != 0 || !strings.Contains(errs.String(), tt.want) {
			t.Errorf("%q: exit code %d, said %q, complained %q",
				tt.args, code, out.String(), errs.String())
		}
	}
}

// TestMinHold checks that with --min-hold the lock remains held after a short command, so that a
// second cron job does not run the command again. Without --min-hold the lock is released
// immediately.
func TestMinHold(t *testing.T) {
	m := inprocess.Run(t, 1)[0]
	run := func(args ...string) int {
		return Main(app.Process{
			Args: slices.Concat([]string{
				"run", "--endpoints", m.Endpoint(), "--command-timeout", "1h", "--ttl", "1h", "--try",
			}, args, []string{"--", "true"}),
			Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard, Shared: true,
		})
	}
	for _, tt := range []struct {
		args []string
		want int
	}{
		{[]string{"--lock", "free"}, 0},
		{[]string{"--lock", "free"}, 0},
		{[]string{"--lock", "kept", "--min-hold", "1000h"}, 0},
		{[]string{"--lock", "kept"}, app.ExitTaken},
	} {
		if code := run(tt.args...); code != tt.want {
			t.Errorf("run %v: exit code %d, want %d", tt.args, code, tt.want)
		}
	}
}
