package keys

import (
	"errors"
	"strings"
	"testing"
)

// TestWatchArgs checks which words are keys and which belong to the command, with and without keys
// in the environment. Each line is parsed both as shell arguments (with "--" removed by cobra) and
// as an interactive line. Both must give the same result.
func TestWatchArgs(t *testing.T) {
	for _, tc := range []struct {
		line       string
		env        string
		keys, exec string
		err        error
	}{
		{line: "foo", keys: "foo"},
		{line: "foo bar", keys: "foo bar"},
		{line: "--rev 1 foo", keys: "foo"},
		{line: "foo --rev 1 bar", keys: "foo bar"},
		{line: "foo -- echo Hello World", keys: "foo", exec: "echo Hello World"},
		{line: "foo -- echo watch foo", keys: "foo", exec: "echo watch foo"},
		{line: "foo --rev 1 bar -- echo x", keys: "foo bar", exec: "echo x"},
		{line: "foo bar --rev 1 -- echo --flag", keys: "foo bar", exec: "echo --flag"},
		{line: "foo -- foo", keys: "foo", exec: "foo"},
		{line: "", env: "foo", keys: "foo"},
		{line: "", env: "foo bar", keys: "foo bar"},
		{line: "--rev 1", env: "foo", keys: "foo"},
		{line: "--rev 1 -- echo x", env: "foo bar", keys: "foo bar", exec: "echo x"},
		{line: "", err: errArgCount},
		{line: "--rev 1", err: errArgCount},
		{line: "-- echo x", err: errArgCount},
		{line: "a b c", err: errArgCount},
		{line: "foo --", err: errNoCommand},
		{line: "--", env: "foo", err: errNoCommand},
		{line: "foo", env: "foo", err: errArgsAndEnv},
		{line: "foo bar -- echo x", env: "foo", err: errArgsAndEnv},
	} {
		words, env := strings.Fields(tc.line), strings.Fields(tc.env)
		_, w, err := parseWatchLine(words, env)
		if !errors.Is(err, tc.err) {
			t.Errorf("%q with %q: %v, want %v", tc.line, tc.env, err, tc.err)
		}
		if strings.Join(w.keys, " ") != tc.keys || strings.Join(w.exec, " ") != tc.exec {
			t.Errorf("%q with %q: keys %q, command %q", tc.line, tc.env, w.keys, w.exec)
		}
	}
}

func FuzzWatchLine(f *testing.F) {
	f.Add("watch --rev 1 foo -- echo hello", "")
	f.Add("watch -- x", "key")
	f.Fuzz(func(t *testing.T, line, env string) {
		words, err := splitWords(line)
		if err != nil || len(words) == 0 {
			return
		}
		_, w, err := parseWatchLine(words[1:], strings.Fields(env))
		if err == nil && (len(w.keys) < 1 || len(w.keys) > 2) && len(strings.Fields(env)) < 3 {
			t.Errorf("%q with %q: keys %q", line, env, w.keys)
		}
	})
}
