package app

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestEnvironment checks that a flag takes precedence over a LEASEHOLD_ variable, which takes
// precedence over etcdctl's variable.
func TestEnvironment(t *testing.T) {
	env := map[string]string{}
	format := func(args ...string) string {
		a := &App{Process: Process{}}
		root := &cobra.Command{}
		a.Flags.Register(root)
		if err := root.ParseFlags(args); err != nil {
			t.Fatal(err)
		}
		getenv := func(name string) string { return env[name] }
		if err := a.Flags.FromEnv(root.PersistentFlags(), getenv); err != nil {
			t.Fatal(err)
		}
		return a.Flags.Format
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
	if p.Getenv("A") != "3" || p.Getenv("B") != "2" || p.Getenv("C") != "" {
		t.Error("getenv: the last value of a name counts")
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
		a := &App{Process: Process{
			Stdin: strings.NewReader("typed\n"), Stdout: &bytes.Buffer{},
		}}
		a.Flags.auth = tc.flags
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
	a := new(App)
	a.Flags.auth.tokenFile = file
	if got, err := a.auth(); err != nil || got.Token != "t" {
		t.Errorf("of a file: %+v, %v", got, err)
	}
	a.Flags.auth.user = "u"
	if got, err := a.auth(); err == nil {
		t.Errorf("of a file and a user: %+v", got)
	}
	if got, err := new(App).auth(); got != nil || err != nil {
		t.Errorf("without flags: %v, %v", got, err)
	}
}

func TestExitCodes(t *testing.T) {
	if ExitCode(nil) != 0 || ExitCode(errors.New("x")) != ExitFailure || WithCode(7, nil) != nil {
		t.Error("plain errors")
	}
	inner := errors.New("x")
	if err := WithCode(ExitInterrupted, inner); ExitCode(err) != 5 || !errors.Is(err, inner) {
		t.Error("coded error")
	}
	if Reported(1).Error() == "" {
		t.Error("an error without a text")
	}
}
