package serve

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"leasehold.dev/server"
)

// snapshotRun runs a snapshot command and returns its output.
func snapshotRun(t *testing.T, args ...string) (string, error) {
	t.Helper()
	c := SnapshotCommand()
	var out bytes.Buffer
	c.SetOut(&out)
	c.SetErr(&out)
	c.SilenceErrors, c.SilenceUsage = true, true
	for _, sub := range c.Commands() {
		sub.SilenceErrors, sub.SilenceUsage = true, true
	}
	c.SetArgs(args)
	err := c.Execute()
	return out.String(), err
}

// TestSnapshotMistakes checks that mistakes result in etcdutl's exit codes and helpful errors.
// test/e2e tests the successful cases with the complete program.
func TestSnapshotMistakes(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	newer := filepath.Join(dir, "newer")
	if err := os.WriteFile(newer, []byte("leasehold backup 2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(dir, "data")
	for _, c := range []struct {
		args string
		want string
		code int
	}{
		{"restore", "requires exactly one argument", 128},
		{"restore a b", "requires exactly one argument", 128},
		{"status", "requires exactly one argument", 128},
		{"dump", "requires exactly one argument", 128},
		{"dump " + text, text + ": backup: not a complete backup", 1},
		{"dump " + newer, "a newer release", 6},
		{"status " + newer, "wrote this backup: restore it with that release", 6},
		{
			"restore --data-dir " + data + " " + newer,
			"a newer release wrote this backup: restore it with that release or a later one " +
				"(this is release 0.1.0, for cluster versions 0.1)", 6,
		},
		{"status -w protobuf " + text, "protobuf not supported as output format", 4},
		{"status " + text, text + ": backup: not a complete backup", 1},
		{"status " + dir + "/none", "no such file", 1},
		{"restore --data-dir " + data + " " + text, text + ": backup: not a complete backup", 1},
		{"restore --data-dir " + data + " " + dir + "/none", "no such file", 1},
		{"restore --data-dir " + dir + " " + text, "not empty or could not be read", 1},
		{"restore --bump-revision 5 --mark-compacted=false " + text, "is required if the revision is increased", 128},
		{"restore --mark-compacted=false " + text, "is required if the revision is increased", 128},
		{"restore --bump-revision 0 --mark-compacted " + text, "keeps the revision and the history", 128},
		{"restore --bump-revision 9223372036854775808 --mark-compacted " + text, "range", 128},
		{"restore --bump-revision -1 " + text, "invalid argument", 1},
		{"restore --initial-cluster a " + text, `"a" is not NAME=URL`, 1},
		{"restore --initial-advertise-peer-urls x " + text, "no scheme", 1},
		{
			"restore --initial-cluster b=http://h:1 --data-dir " + data + " " + text,
			`does not list member "default"`, 1,
		},
		{"restore --name= --data-dir " + data + " " + text, "name is empty", 1},
	} {
		out, err := snapshotRun(t, strings.Fields(c.args)...)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.args, err, c.want)
		}
		code := 1
		var e interface{ ExitCode() int }
		if errors.As(err, &e) {
			code = e.ExitCode()
		}
		if code != c.code {
			t.Errorf("%s: exit code %d, want %d", c.args, code, c.code)
		}
		if out != "" {
			t.Errorf("%s: it printed %q", c.args, out)
		}
	}
	if _, err := os.Stat(data); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a directory was left behind: %v", err)
	}
}

// TestLogDumpMistakes checks that wrong arguments to "log dump" are reported before any file is
// opened.
func TestLogDumpMistakes(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"dump", "requires exactly one argument"},
		{"dump --from 5 --to 2 none", "--from 5 must not be greater than --to 2"},
		{"dump --from 5 --to 5 none", "not a leasehold data directory"},
		{"dump --from 5 none", "not a leasehold data directory"},
	} {
		cmd := LogCommand()
		cmd.SetArgs(strings.Fields(c.args))
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		for _, sub := range cmd.Commands() {
			sub.SilenceErrors, sub.SilenceUsage = true, true
		}
		if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.args, err, c.want)
		}
	}
}

// TestStatusFormats checks every field of status in each output format.
func TestStatusFormats(t *testing.T) {
	info := server.BackupInfo{
		Hash: 0xb10c1776, Revision: 12, Keys: 3, Bytes: 20480, Version: "leasehold 1", Leases: 2,
		Compacted: 4, Members: 3, Cluster: 0xabc, ClusterVersion: "0.1",
	}
	for format, want := range map[string]string{
		"simple": "b10c1776, 12, 3, 20 kB, leasehold 1, 2, 4, 3, 0000000000000abc, 0.1\n",
		"json": `{"hash":2970359670,"revision":12,"totalKey":3,"totalSize":20480,` +
			`"version":"leasehold 1","totalLeases":2,"compactedRevision":4,"totalMembers":3,` +
			`"cluster":"0000000000000abc","clusterVersion":"0.1"}` + "\n",
		"fields": "\"Hash\" : 2970359670\n\"Revision\" : 12\n\"Keys\" : 3\n\"Size\" : 20480\n" +
			"\"Version\" : leasehold 1\n\"Leases\" : 2\n\"Compacted\" : 4\n" +
			"\"Members\" : 3\n\"Cluster\" : 0000000000000abc\n\"ClusterVersion\" : 0.1\n",
		"table": "" +
			"┌──────────┬──────────┬────────────┬────────────┬─────────────┬─────" +
			"─────────┬───────────┬─────────┬──────────────────┬─────────────────┐\n" +
			"│   HASH   │ REVISION │ TOTAL KEYS │ TOTAL SIZE │   VERSION   │ TOTA" +
			"L LEASES │ COMPACTED │ MEMBERS │     CLUSTER      │ CLUSTER VERSION │\n" +
			"├──────────┼──────────┼────────────┼────────────┼─────────────┼─────" +
			"─────────┼───────────┼─────────┼──────────────────┼─────────────────┤\n" +
			"│ b10c1776 │       12 │          3 │      20 kB │ leasehold 1 │     " +
			"       2 │         4 │       3 │ 0000000000000abc │             0.1 │\n" +
			"└──────────┴──────────┴────────────┴────────────┴─────────────┴─────" +
			"─────────┴───────────┴─────────┴──────────────────┴─────────────────┘\n",
	} {
		var out bytes.Buffer
		if err := statusFormats[format](&out, info); err != nil || out.String() != want {
			t.Errorf("%s: %v\n%s\nwant\n%s", format, err, out.String(), want)
		}
	}
}
