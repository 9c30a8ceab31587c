package access

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/iotest"

	"leasehold.dev/internal/cli/app"
)

// TestPasswords checks each way to supply a password when standard input is not a terminal.
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
		a := &app.App{Process: app.Process{Stdin: strings.NewReader(tc.input), Stdout: &out}}
		got, err := commands{a}.newPassword("ann", tc.interactive)
		if got != tc.want || (err != nil) != tc.bad {
			t.Errorf("%q: %q, %v", tc.input, got, err)
		}
		if tc.interactive && !strings.HasPrefix(out.String(), "Password of ann: \n") {
			t.Errorf("prompted %q", out.String())
		}
	}
	a := &app.App{Process: app.Process{
		Stdin: iotest.ErrReader(errors.New("gone")), Stdout: &bytes.Buffer{},
	}}
	_, err := commands{a}.newPassword("ann", true)
	if app.ExitCode(err) != app.ExitBadArgs {
		t.Errorf("broken input: %v", err)
	}
}
