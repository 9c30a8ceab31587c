package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"leasehold.dev/internal/cli/app"
)

// try runs a command that needs no server.
func try(p app.Process, more ...*cobra.Command) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	p.Stdout, p.Stderr = &out, &err
	if p.Stdin == nil {
		p.Stdin = strings.NewReader("")
	}
	code = Main(p, more...)
	return code, out.String(), err.String()
}

// TestHelpGroups checks that the help shows every group of commands, and shows them in a fixed
// order.
func TestHelpGroups(t *testing.T) {
	serve := &cobra.Command{
		Use: "serve", Short: "Run a member", Run: func(*cobra.Command, []string) {},
	}
	code, out, _ := try(app.Process{Args: []string{"--help"}}, serve)
	if code != 0 {
		t.Fatalf("exit code %d", code)
	}
	last := -1
	for _, title := range []string{
		"Server:", "Leases:", "Keys and watches:", "Locks, elections,", "Cluster:", "Access control:",
		"Maintenance:", "Planning:", "Other commands:", "--endpoints",
	} {
		at := strings.Index(out, title)
		if at <= last {
			t.Errorf("%q is missing or out of order in\n%s", title, out)
		}
		last = at
	}
}

// TestMoreCommands checks that a command from another package has only its own flags, keeps its
// exit code, and ignores the client's environment variables.
func TestMoreCommands(t *testing.T) {
	failure := error(nil)
	newServe := func() *cobra.Command {
		return &cobra.Command{
			Use:  "serve",
			RunE: func(*cobra.Command, []string) error { return failure },
		}
	}
	env := []string{"ETCDCTL_DIAL_TIMEOUT=nonsense"}
	if code, _, stderr := try(app.Process{Args: []string{"serve"}, Env: env}, newServe()); code != 0 {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	code, _, stderr := try(app.Process{Args: []string{"serve", "--endpoints=x"}}, newServe())
	if code != app.ExitFailure || !strings.Contains(stderr, "unknown flag: --endpoints") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	failure = codedError{}
	if code, _, stderr = try(app.Process{Args: []string{"serve"}}, newServe()); code != 42 {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

// TestMoreFamilies checks that a command group from another package rejects an unknown subcommand,
// so that a script cannot mistake the help for success. Without a subcommand the group prints its
// help.
func TestMoreFamilies(t *testing.T) {
	newConfig := func() *cobra.Command {
		c := &cobra.Command{Use: "config <subcommand>"}
		c.AddCommand(&cobra.Command{Use: "show", Run: func(*cobra.Command, []string) {}})
		return c
	}
	code, out, stderr := try(app.Process{Args: []string{"config", "shew", "x"}}, newConfig())
	if code != app.ExitFailure || out != "" || !strings.Contains(stderr, `Did you mean "show"?`) {
		t.Errorf("exit code %d: %s%s", code, out, stderr)
	}
	code, out, stderr = try(app.Process{Args: []string{"config"}}, newConfig())
	if code != 0 || !strings.Contains(out, "Usage:") || stderr != "" {
		t.Errorf("alone: exit code %d: %s%s", code, out, stderr)
	}
	if code, out, stderr = try(app.Process{Args: []string{"config", "show"}}, newConfig()); code != 0 {
		t.Errorf("show: exit code %d: %s%s", code, out, stderr)
	}
}

type codedError struct{}

func (codedError) Error() string { return "cannot" }
func (codedError) ExitCode() int { return 42 }

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		code, out, _ := try(app.Process{Args: []string{"completion", shell}})
		if code != 0 || !strings.Contains(out, "leasehold") {
			t.Errorf("%s: exit code %d, %d bytes", shell, code, len(out))
		}
	}
	for args, want := range map[string]string{
		"__complete lea":              "lease",
		"__complete lease gr":         "grant",
		"__complete get -w j":         "json",
		"__complete get x --sort-by ": "VERSION",
	} {
		words := strings.Split(args, " ")
		if _, out, _ := try(app.Process{Args: words}); !strings.Contains(out, want) {
			t.Errorf("%q completes to %q, want %q", args, out, want)
		}
	}
}

func TestDebugHidesPasswords(t *testing.T) {
	_, _, stderr := try(app.Process{Args: []string{
		"--debug", "--user=u", "--password=sesame", "get", "x", "--command-timeout=1ms",
		"--dial-timeout=1ms", "--endpoints=127.0.0.1:1",
	}})
	if strings.Contains(stderr, "sesame") || !strings.Contains(stderr, "LEASEHOLD_PASSWORD=***") {
		t.Errorf("printed %s", stderr)
	}
}
