package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"leasehold.dev/server"
)

// TestExitCodeOfRelease checks that a member that needs a different release exits with a specific
// code, so that its supervisor can stop restarting it.
func TestExitCodeOfRelease(t *testing.T) {
	for _, c := range []struct {
		err  error
		code int
	}{
		{fmt.Errorf("it ends: %w", server.ErrTooOld), exitRelease},
		{fmt.Errorf("it ends: %w", server.ErrUnsupportedVersion), exitRelease},
		{errors.New("another"), 1},
	} {
		p := process{
			env: func() []string { return nil }, hostname: func() string { return "host" },
			run: func(context.Context, server.Config, *joiner, *reloader) error { return c.err },
		}
		command := command(p)
		command.SetArgs([]string{"--data-dir", t.TempDir()})
		command.SetOut(io.Discard)
		command.SetErr(io.Discard)
		err, code := command.Execute(), 1
		var coded interface{ ExitCode() int }
		if errors.As(err, &coded) {
			code = coded.ExitCode()
		}
		if !errors.Is(err, c.err) || code != c.code {
			t.Errorf("%v ends with %d, want %d", err, code, c.code)
		}
	}
}
