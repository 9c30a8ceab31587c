package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// contextsIn makes a process whose contexts are in a directory of the test.
func contextsIn(t *testing.T, dir string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, complaints strings.Builder
	code = Main(Process{
		Args: args, Env: []string{"HOME=" + dir}, Stdin: strings.NewReader(""),
		Stdout: &out, Stderr: &complaints,
	})
	return out.String(), complaints.String(), code
}

// Goal: of a flag counts what the command line says, then a variable, then the context; and what a
// context says of the user or the place of a cluster does not mix with what a command says of that.
func TestContextOrder(t *testing.T) {
	dir := t.TempDir()
	for _, args := range [][]string{
		{"context", "add", "prod", "--endpoints", "p:1,q:2", "--user", "alice", "-w", "json", "--use"},
		{"context", "add", "test", "--endpoints", "t:1", "--command-timeout", "9s"},
	} {
		if _, complaint, code := contextsIn(t, dir, args...); code != 0 {
			t.Fatalf("%v: %s", args, complaint)
		}
	}
	for _, tt := range []struct {
		args, env string
		want      string // endpoints, user, format, and how long a command may take
	}{
		{"", "", "p:1,q:2 alice json 5s"},
		{"--context test", "", "t:1  simple 9s"},
		{"", "LEASEHOLD_CONTEXT=test", "t:1  simple 9s"},
		{"--context=", "", "127.0.0.1:2379  simple 5s"},
		{"--endpoints x:1", "", "x:1  simple 5s"},
		{"", "ETCDCTL_ENDPOINTS=x:1", "x:1  simple 5s"},
		{"--context prod --endpoints x:1", "", "x:1 alice json 5s"},
		{"--token-file f", "", "p:1,q:2  json 5s"},
		{"-o yaml", "", "p:1,q:2 alice yaml 5s"},
		{"", "LEASEHOLD_USER=bob", "p:1,q:2 bob json 5s"},
	} {
		a := &app{Process: Process{Env: []string{"HOME=" + dir, tt.env}}}
		root := a.root(nil)
		if err := root.ParseFlags(strings.Fields(tt.args)); err != nil {
			t.Fatal(err)
		}
		if err := a.flags.fill(root.PersistentFlags(), a.getenv); err != nil {
			t.Errorf("%s %s: %v", tt.args, tt.env, err)
			continue
		}
		f := a.flags
		got := strings.Join([]string{
			strings.Join(f.endpoints, ","), f.auth.user, f.format, f.commandTimeout.String(),
		}, " ")
		if got != tt.want {
			t.Errorf("%s %s: %q, want %q", tt.args, tt.env, got, tt.want)
		}
	}
}

// Goal: a context that is wrong is refused with what to do, and nothing is written.
func TestWrongContexts(t *testing.T) {
	dir := t.TempDir()
	add := func(args ...string) []string { return append([]string{"context", "add"}, args...) }
	contextsIn(t, dir, add("there", "--endpoints", "a:1")...)
	path := filepath.Join(dir, ".config/leasehold/contexts.yaml")
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("the file's mode: %v, %v", st.Mode(), err)
	}
	for want, args := range map[string][]string{
		"needs one name":                  add("--endpoints", "a:1"),
		"letters, digits":                 add("a b", "--endpoints", "a:1"),
		"needs client flags":              add("x"),
		"has no port":                     add("x", "--endpoints", "a"),
		"a file keeps no password":        add("x", "--password", "p", "--user", "u"),
		"--user: a file keeps":            add("x", "--user", "u:p"),
		"a file keeps no token":           add("x", "--auth-jwt-token", "t"),
		"no such file":                    add("x", "--cacert", "nowhere.pem"),
		"--replace replaces it":           add("there", "--endpoints", "b:1"),
		"Did you mean \"there\"?":         {"context", "use", "ther"},
		"one name, or --none":             {"context", "use", "there", "--none"},
		"there is no context \"nowhere\"": {"context", "remove", "nowhere"},
		"no context \"nobody's\" in":      {"get", "k", "--context", "nobody's"},
	} {
		_, complaint, code := contextsIn(t, dir, args...)
		if code == 0 || !strings.Contains(complaint, want) {
			t.Errorf("%v: code %d, %q; want %q", args, code, complaint, want)
		}
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
		t.Errorf("the file is now %q, %v", after, err)
	}
	for text, want := range map[string]string{
		"current: a\ncontexts:\n  a:\n    password: p\n": "password is no flag of a context",
		"current: a\ncontexts:\n  a:\n    endpoint: p\n": "there is no flag --endpoint",
		"current: a\ncontexts:\n  a:\n    hex: maybe\n":  "invalid value \"maybe\" for hex",
		"current: gone\n":                                   "there is no context \"gone\"",
		"contexts:\n  a: {}\nold: b\n":                      "line 3: field old not found",
		"current: a\ncontexts:\n  a:\n    context: other\n": "it says which context is meant",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, got, code := contextsIn(t, dir, "get", "k"); code == 0 || !strings.Contains(got, want) {
			t.Errorf("%q: code %d, %q; want %q", text, code, got, want)
		}
	}
	for _, text := range []string{"", "contexts:\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, got, code := contextsIn(t, dir, add("x", "--endpoints", "a:1")...); code != 0 {
			t.Errorf("%q has no contexts: code %d, %q", text, code, got)
		}
	}
	if err := os.WriteFile(path, []byte("current: gone\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// What shells read at their start has no use for contexts.
	if _, got, code := contextsIn(t, dir, "completion", "bash"); code != 0 {
		t.Errorf("completion with a wrong context: %d, %q", code, got)
	}
}
