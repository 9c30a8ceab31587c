package cli

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/spf13/cobra"
)

// try runs a command line that needs no server.
func try(p Process, more ...*cobra.Command) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	p.Stdout, p.Stderr = &out, &err
	if p.Stdin == nil {
		p.Stdin = strings.NewReader("")
	}
	code = Main(p, more...)
	return code, out.String(), err.String()
}

// Goal: the help shows every group, in the order of a day's work. Method: the
// positions of the titles.
func TestHelpGroups(t *testing.T) {
	serve := &cobra.Command{
		Use: "serve", Short: "Run a member", Run: func(*cobra.Command, []string) {},
	}
	code, out, _ := try(Process{Args: []string{"--help"}}, serve)
	if code != 0 {
		t.Fatalf("exit code %d", code)
	}
	last := -1
	for _, title := range []string{
		"Server:", "Leases:", "Keys:", "Watch:", "Locks and elections:", "Cluster:",
		"Maintenance:", "Other commands:", "--endpoints",
	} {
		at := strings.Index(out, title)
		if at <= last {
			t.Errorf("%q is missing or out of order in\n%s", title, out)
		}
		last = at
	}
}

// Goal: the command of another package has its own flags only, keeps its exit
// code, and does not read the variables of the client. Method: one that fails
// in its own way.
func TestMoreCommands(t *testing.T) {
	failure := error(nil)
	newServe := func() *cobra.Command {
		return &cobra.Command{
			Use:  "serve",
			RunE: func(*cobra.Command, []string) error { return failure },
		}
	}
	env := []string{"ETCDCTL_DIAL_TIMEOUT=nonsense"}
	if code, _, stderr := try(Process{Args: []string{"serve"}, Env: env}, newServe()); code != 0 {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	code, _, stderr := try(Process{Args: []string{"serve", "--endpoints=x"}}, newServe())
	if code != exitFailure || !strings.Contains(stderr, "unknown flag: --endpoints") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	failure = codedError{}
	if code, _, stderr = try(Process{Args: []string{"serve"}}, newServe()); code != 42 {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

// Goal: a command of another package that only holds others refuses a name that is none of them,
// so that no script takes the help for the work; alone, it shows its help. Method: one with a
// command.
func TestMoreFamilies(t *testing.T) {
	newConfig := func() *cobra.Command {
		c := &cobra.Command{Use: "config <subcommand>"}
		c.AddCommand(&cobra.Command{Use: "show", Run: func(*cobra.Command, []string) {}})
		return c
	}
	code, out, stderr := try(Process{Args: []string{"config", "shew", "x"}}, newConfig())
	if code != exitFailure || out != "" || !strings.Contains(stderr, `Did you mean "show"?`) {
		t.Errorf("exit code %d: %s%s", code, out, stderr)
	}
	code, out, stderr = try(Process{Args: []string{"config"}}, newConfig())
	if code != 0 || !strings.Contains(out, "Usage:") || stderr != "" {
		t.Errorf("alone: exit code %d: %s%s", code, out, stderr)
	}
	if code, out, stderr = try(Process{Args: []string{"config", "show"}}, newConfig()); code != 0 {
		t.Errorf("show: exit code %d: %s%s", code, out, stderr)
	}
}

type codedError struct{}

func (codedError) Error() string { return "cannot" }
func (codedError) ExitCode() int { return 42 }

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		code, out, _ := try(Process{Args: []string{"completion", shell}})
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
		if _, out, _ := try(Process{Args: words}); !strings.Contains(out, want) {
			t.Errorf("%q completes to %q, want %q", args, out, want)
		}
	}
}

// Goal: a flag, then our variable, then etcdctl's. Method: all three on one flag.
func TestEnvironment(t *testing.T) {
	env := map[string]string{}
	format := func(args ...string) string {
		a := &app{Process: Process{}}
		root := a.root(nil)
		if err := root.ParseFlags(args); err != nil {
			t.Fatal(err)
		}
		getenv := func(name string) string { return env[name] }
		if err := a.flags.fromEnv(root.PersistentFlags(), getenv); err != nil {
			t.Fatal(err)
		}
		return a.flags.format
	}
	if got := format(); got != "simple" {
		t.Errorf("without anything: %s", got)
	}
	env["ETCDCTL_WRITE_OUT"] = "json"
	if got := format(); got != "json" {
		t.Errorf("etcdctl's variable: %s", got)
	}
	env["LEASEHOLD_WRITE_OUT"] = "table"
	if got := format(); got != "table" {
		t.Errorf("our variable: %s", got)
	}
	if got := format("-w", "fields"); got != "fields" {
		t.Errorf("the flag: %s", got)
	}
	p := Process{Env: []string{"A=1", "B=2", "A=3", "AB=4"}}
	if p.getenv("A") != "3" || p.getenv("B") != "2" || p.getenv("C") != "" {
		t.Error("getenv: the last value of a name counts")
	}
}

func TestDebugHidesPasswords(t *testing.T) {
	_, _, stderr := try(Process{Args: []string{
		"--debug", "--user=u", "--password=sesame", "get", "x", "--command-timeout=1ms",
		"--dial-timeout=1ms", "--endpoints=127.0.0.1:1",
	}})
	if strings.Contains(stderr, "sesame") || !strings.Contains(stderr, "LEASEHOLD_PASSWORD=***") {
		t.Errorf("printed %s", stderr)
	}
}

// Goal: the ways to give a password. Method: a standard input that is no terminal.
func TestPasswords(t *testing.T) {
	for _, tc := range []struct {
		input       string
		interactive bool
		want        string
		bad         bool
	}{
		{"one\none\n", true, "one", false},
		{" one \r\none", true, "one", false},
		{"one\ntwo\n", true, "", true},
		{"\n", true, "", true},
		{"word rest\n", false, "word", false},
		{"", false, "", false},
	} {
		var out bytes.Buffer
		a := &app{Process: Process{Stdin: strings.NewReader(tc.input), Stdout: &out}}
		got, err := a.newPassword("ann", tc.interactive)
		if got != tc.want || (err != nil) != tc.bad {
			t.Errorf("%q: %q, %v", tc.input, got, err)
		}
		if tc.interactive && !strings.HasPrefix(out.String(), "Password of ann: \n") {
			t.Errorf("prompted %q", out.String())
		}
	}
	a := &app{Process: Process{
		Stdin: iotest.ErrReader(errors.New("gone")), Stdout: &bytes.Buffer{},
	}}
	if _, err := a.newPassword("ann", true); exitCode(err) != exitBadArgs {
		t.Errorf("broken input: %v", err)
	}
}

func TestAuthConfig(t *testing.T) {
	for _, tc := range []struct {
		flags                 authFlags
		user, password, token string
	}{
		{authFlags{user: "u:p:q"}, "u", "p:q", ""},
		{authFlags{user: "u:x", password: "p"}, "u:x", "p", ""},
		{authFlags{user: "u"}, "u", "typed", ""},
		{authFlags{user: "u", token: "t"}, "", "", "t"},
	} {
		a := &app{Process: Process{
			Stdin: strings.NewReader("typed\n"), Stdout: &bytes.Buffer{},
		}}
		a.flags.auth = tc.flags
		got, err := a.auth()
		if err != nil || got.Username != tc.user || got.Password != tc.password ||
			got.Token != tc.token {
			t.Errorf("%+v: %+v, %v", tc.flags, got, err)
		}
	}
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("t\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	a := new(app)
	a.flags.auth.tokenFile = file
	if got, err := a.auth(); err != nil || got.Token != "t" {
		t.Errorf("of a file: %+v, %v", got, err)
	}
	a.flags.auth.user = "u"
	if got, err := a.auth(); err == nil {
		t.Errorf("of a file and a user: %+v", got)
	}
	if got, err := new(app).auth(); got != nil || err != nil {
		t.Errorf("without flags: %v, %v", got, err)
	}
}

func TestExitCodes(t *testing.T) {
	if exitCode(nil) != 0 || exitCode(errors.New("x")) != exitFailure || withCode(7, nil) != nil {
		t.Error("plain errors")
	}
	inner := errors.New("x")
	if err := withCode(exitInterrupted, inner); exitCode(err) != 5 || !errors.Is(err, inner) {
		t.Error("coded error")
	}
	if (&exitError{code: 1}).Error() == "" {
		t.Error("an error without a text")
	}
}
