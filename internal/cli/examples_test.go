package cli

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"leasehold.dev/internal/cli/app"
)

// TestCommandExamples checks that each command has an example, and that all commands and flags in
// examples exist.
func TestCommandExamples(t *testing.T) {
	var leaves int
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			walk(sub)
		}
		if c.HasSubCommands() || c.Name() == "help" || c.Parent().Name() == "completion" {
			return
		}
		leaves++
		own := 0
		for _, line := range strings.Split(c.Example, "\n") {
			words := strings.Fields(strings.ReplaceAll(line, "\\", ""))
			for i, w := range words {
				if w != "leasehold" || i > 0 && words[i-1] != "&&" {
					continue // does not start a leasehold command
				}
				path, err := readExample(words[i+1:])
				if err != nil {
					t.Errorf("%s: %s: %v", c.CommandPath(), line, err)
				}
				if path == c.CommandPath() {
					own++
				}
			}
		}
		if own == 0 {
			t.Errorf("%s has no example", c.CommandPath())
		}
	}
	walk(Commands())
	if leaves < 80 {
		t.Errorf("only %d commands were looked at", leaves)
	}
}

// readExample parses the flags of an example and returns the path of its command. It builds a new
// command tree for each example, because flags keep their values.
func readExample(words []string) (path string, err error) {
	for i, w := range words {
		if slices.Contains([]string{"--", "&&", "<", ">", "|", "#", "./backup.sh"}, w) {
			words = words[:i]
			break
		}
	}
	cmd, rest, err := Commands().Find(words)
	if err != nil {
		return "", err
	}
	cmd.InitDefaultHelpFlag()
	return cmd.CommandPath(), cmd.ParseFlags(rest)
}

// TestExitCodesAreListed checks that docs/command-line.md lists all exit codes.
func TestExitCodesAreListed(t *testing.T) {
	text, err := os.ReadFile("../../docs/command-line.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, code := range []int{
		app.ExitFailure, app.ExitConnection, app.ExitInput, app.ExitFeature, app.ExitInterrupted, app.ExitBadArgs, app.ExitTaken,
		app.ExitNoCore, app.ExitLost, app.ExitOwn, app.ExitCannot, app.ExitNoSuch, app.ExitDegraded, app.ExitFound,
	} {
		row := fmt.Sprintf(`(?m)^\|[^|]*\b%d\b[^|]*\||exits\s+with[^.]*\b%d (for|if) `, code, code)
		if !regexp.MustCompile(row).Match(text) {
			t.Errorf("docs/command-line.md does not list the exit code %d", code)
		}
	}
}
