package cli

import (
	"strings"
	"testing"
	"unicode/utf8"

	"leasehold.dev/internal/cli/app"
)

// TestReportWidth checks that a report is as wide as the terminal, within bounds.
func TestReportWidth(t *testing.T) {
	for _, c := range []struct {
		env  []string
		most int
	}{
		{nil, 80},
		{[]string{"COLUMNS=50"}, 50},
		{[]string{"COLUMNS=1000"}, 120},
		{[]string{"COLUMNS=nonsense"}, 80},
	} {
		code, out, stderr := try(app.Process{Args: []string{"plan", "outage"}, Env: c.env})
		if code != 0 {
			t.Fatalf("%v: %s", c.env, stderr)
		}
		_, sentences, _ := strings.Cut(out, "\n\n")
		longest := 0
		for line := range strings.Lines(sentences) {
			longest = max(longest, utf8.RuneCountInString(strings.TrimRight(line, "\n")))
		}
		if longest > c.most || longest < c.most*3/4 {
			t.Errorf("%v: the longest line has %d letters, want about %d", c.env, longest, c.most)
		}
	}
}
