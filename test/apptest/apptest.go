// Package apptest checks the output of commands.
package apptest

import (
	"strconv"
	"strings"
	"testing"

	"leasehold.dev/internal/cli/app"
)

// Evil is a string that contains terminal control characters.
const Evil = "a\x1b[2J\u009b31m\x7f\r\nb\xff"

// Harmless checks that no human-readable output contains terminal control characters.
func Harmless(t *testing.T, answers map[string]app.Answer) {
	t.Helper()
	for name, ans := range answers {
		for _, format := range []string{"simple", "fields", "table"} {
			text, _ := ans.Text(format, false) // not every answer supports every format
			if i := strings.IndexFunc(text, func(r rune) bool {
				return r != '\n' && r != '\t' && !strconv.IsPrint(r) || r == '\ufffd'
			}); i >= 0 {
				t.Errorf("%s, %s: %q", name, format, text)
			}
		}
	}
}
