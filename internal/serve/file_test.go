package serve

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// file writes a configuration file.
func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "leasehold.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestEtcdConfigFile checks that etcd's configuration file works without changes. Settings that
// Leasehold ignores cause a warning if they differ from etcd's default.
func TestEtcdConfigFile(t *testing.T) {
	o := try(t, nil, "--config-file", "testdata/etcd.yaml")
	if o.err != nil {
		t.Fatal(o.err)
	}
	c := o.cfg
	for what, ok := range map[string]bool{
		"name": c.Name == "m1", "data-dir": c.DataDir == "/var/lib/etcd",
		"election":      c.Raft.ElectionTimeout == time.Second,
		"list of URLs":  len(c.URLs.ListenClient) == 2,
		"members":       len(c.Cluster.Initial) == 2,
		"reconfig":      !c.Cluster.StrictReconfigCheck,
		"compaction":    c.Compaction.Period == time.Hour,
		"nanoseconds":   c.GRPC.KeepAliveInterval == 2*time.Hour,
		"suites":        len(c.ClientTLS.CipherSuites) == 2 && len(c.PeerTLS.CipherSuites) == 2,
		"client TLS":    c.ClientTLS.CertFile == "server.crt" && c.ClientTLS.ClientCertAuth,
		"client names":  slices.Equal(c.ClientTLS.AllowedCNs, []string{"alice"}),
		"client hosts":  len(c.ClientTLS.AllowedHostnames) == 2,
		"peer TLS":      c.PeerTLS.TrustedCAFile == "peer-ca.crt" && c.PeerTLS.ClientCertAuth,
		"peer names":    slices.Equal(c.PeerTLS.AllowedCNs, []string{"m1", "m2"}),
		"peer's client": c.PeerTLS.ClientKeyFile == "peer-client.key",
		"pprof":         c.HTTP.Pprof,
	} {
		if !ok {
			t.Errorf("%s: %+v", what, c)
		}
	}
	for _, want := range []string{
		"setting peer-skip-client-san-verification (testdata/etcd.yaml:",
		"setting discovery-config in testdata/etcd.yaml is accepted but ignored",
		"setting socket-options in", "setting proxy-failure-wait in",
		"setting feature-gates (", "setting compaction-sleep-interval (",
	} {
		if strings.Count(o.stderr, want) != 1 {
			t.Errorf("%d warnings %q: %s", strings.Count(o.stderr, want), want, o.stderr)
		}
	}
	for _, is := range []string{"setting wal-dir", "setting proxy in", "metrics is"} {
		if strings.Contains(o.stderr, is) {
			t.Errorf("a default is warned of: %s", o.stderr)
		}
	}
}

// TestPrecedence checks the order of precedence: flags, LEASEHOLD_ variables, ETCD_ variables, the
// file, and the defaults. It also checks that config show prints the source of each value.
func TestPrecedence(t *testing.T) {
	path := file(t, "name: file\ndata-dir: file\ninitial-cluster-token: file\nmax-learners: 7\n"+
		"cors: &x\n- http://a\n- http://b\nhost-whitelist: *x\n")
	env := []string{
		"LEASEHOLD_NAME=ours", "ETCD_NAME=etcds", "ETCD_DATA_DIR=etcds", "LEASEHOLD_CONFIG_FILE=" + path,
		"ETCD_INITIAL_CLUSTER_TOKEN=etcds",
	}
	o := try(t, env, "--initial-cluster-token", "flag")
	if o.err != nil {
		t.Fatal(o.err)
	}
	c := o.cfg
	if c.Cluster.Token != "flag" || c.Name != "ours" || c.DataDir != "etcds" ||
		c.Cluster.MaxLearners != 7 || c.Limits.MaxTxnOps != 128 ||
		strings.Join(c.HTTP.HostWhitelist, "+") != "http://a+http://b" {
		t.Errorf("%+v", c)
	}
	var out bytes.Buffer
	show := configCommand(func() []string { return env }, func() string { return "h" })
	show.SetOut(&out)
	show.SetArgs([]string{"show", "--initial-cluster-token", "flag"})
	if err := show.Execute(); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	for _, want := range [][2]string{
		{`initial-cluster-token: "flag"`, "# flag"},
		{`name: "ours"`, "# variable LEASEHOLD_NAME"},
		{`data-dir: "etcds"`, "# variable ETCD_DATA_DIR"},
		{"max-learners: 7", "# file " + path + ":4"},
		{"max-txn-ops: 128", "# default"},
	} {
		if !slices.ContainsFunc(lines, func(l string) bool {
			return strings.HasPrefix(l, want[0]+" ") && strings.HasSuffix(l, want[1])
		}) {
			t.Errorf("no line %q ... %q in:\n%s", want[0], want[1], out.String())
		}
	}
	// The printed configuration, used as a file, must have the same meaning.
	again := try(t, nil, "--config-file", file(t, out.String()))
	if again.err != nil {
		t.Fatal(again.err)
	}
	again.cfg.Logger, c.Logger = nil, nil
	again.cfg.HTTP.Collectors, c.HTTP.Collectors = nil, nil
	if a, b := text(again.cfg), text(c); a != b {
		t.Errorf("what config show prints means another configuration:\n%s\n%s", a, b)
	}
}

// TestMistakesInFile checks that a mistake in the file is reported with its line number and advice,
// and that the exit code is 2, even if a flag overrides the setting.
func TestMistakesInFile(t *testing.T) {
	for text, want := range map[string]string{
		"nmae: a":                           `:1: unknown setting "nmae"; did you mean "name"?`,
		"# x\n\nlisten-client-url: x":       `:3: unknown setting "listen-client-url"; did you mean`,
		"listen_client_urls: x":             `did you mean "listen-client-urls"?`,
		"experimental-peer-cert-file: x":    `did you mean "peer-cert-file"?`,
		"qqqqqqqqqqqqqqqqqqqqqqqqq: x":      "see the flags in leasehold serve --help",
		"version: true":                     `unknown setting "version"`,
		"config-file: x":                    `unknown setting "config-file"`,
		"client-transport-securty: {}":      `did you mean "client-transport-security"?`,
		"name: a\nname: b":                  ":2: name is already set, as name on line 1",
		"peer-transport-security: 5":        ":1: peer-transport-security must contain settings",
		"snapshot-count: many":              ":1: invalid value for snapshot-count: it must be an integer",
		`snapshot-count: "5"`:               "it must be an integer, without quotes",
		"snapshot-count: -5":                "it must be an integer",
		"snapshot-count: 1.5":               "it must be an integer",
		"enable-pprof: 1":                   "it must be true or false",
		`enable-pprof: "true"`:              "it must be true or false, without quotes",
		"name: true":                        `it must be a string; quote it: "true"`,
		"name: [a]":                         "it must be a single value, not a list",
		"name: {a: b}":                      "it must be a single value, not a mapping",
		"log-outputs: [[a]]":                "the element on line 1 must be a single value",
		"lease-min-ttl: 5":                  "it needs a unit, as in 5s",
		"lease-min-ttl: soon":               "it must be a duration such as 10s",
		"election-timeout: x":               "neither a number of milliseconds nor a duration",
		"- a":                               ":1: a configuration file must contain settings",
		"just text":                         "a configuration file must contain settings",
		"name: a\n---\nname: b":             "a second document begins here",
		"name: a\n  b: c":                   ":2: not YAML:",
		"name: \"a":                         "not YAML:",
		"name: a\nlog-level: loud":          "(--log-level is set by file ",
		"auto-compaction-mode: weekly":      "(--auto-compaction-mode is set by file ",
		"name: a\nlog-format: xml\n":        "leasehold.yaml:2)",
		"auto-tls: true":                    "use https:// in --listen-client-urls",
		"client-transport-security: {a: b}": `unknown setting "a" in client-transport-security`,
		"peer-transport-security:\n  cert_file: b": `:2: unknown setting "cert_file" in ` +
			`peer-transport-security; did you mean "cert-file"?`,
		"cert-file: a\nclient-transport-security:\n  cert-file: b": ":3: client-transport-security." +
			"cert-file is already set, as cert-file on line 1",
		"peer-transport-security:\n  cert-file: a\npeer-transport-security: {key-file: b}": ":3: " +
			"peer-transport-security is already set on line 1",
		"client-transport-security:\nclient-transport-security:\n": ":2: client-transport-security " +
			"is already set",
	} {
		o := try(t, nil, "--config-file", file(t, text), "--snapshot-count", "7")
		var usage *exitError
		if !errors.As(o.err, &usage) || usage.ExitCode() != 2 || o.ran ||
			!strings.Contains(o.err.Error(), want) {
			t.Errorf("%q: %v (ran %t), want %q", text, o.err, o.ran, want)
		}
	}
	for _, text := range []string{
		"", "# nothing\n", "---\n", "name:\n", "peer-transport-security:\n", "data-dir: &x\nname: *x\n",
	} {
		if o := try(t, nil, "--config-file", file(t, text)); o.err != nil || !o.ran {
			t.Errorf("%q is refused: %v", text, o.err)
		} else if o.cfg.Name != "default" {
			t.Errorf("%q says nothing, and sets the name to %q", text, o.cfg.Name)
		}
	}
}

// FuzzFile checks that no input makes the reader panic.
func FuzzFile(f *testing.F) {
	f.Add("name: a\nclient-transport-security:\n  cert-file: [x, *a]\nlog-outputs: &a [b]\n")
	f.Add("a: &a [*a]\nlease-min-ttl: 5000000000\n<<: {name: b}\n? [x]\n: y\n")
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, _ = newFlags().read([]string{"--config-file", path}, nil)
	})
}

// TestConfigCheck checks that config check prints the configuration, or fails with the same error
// as serve.
func TestConfigCheck(t *testing.T) {
	run := func(env []string, args ...string) (string, error) {
		var out bytes.Buffer
		c := configCommand(func() []string { return env }, func() string { return "h" })
		c.SetOut(&out)
		c.SetArgs(append([]string{"check"}, args...))
		err := c.Execute()
		return out.String(), err
	}
	path := file(t, "name: a\nwal-dir: /x\n")
	out, err := run([]string{"ETCD_DATA_DIR=/d"}, path, "--max-learners=2")
	want := "ok: member a, data in /d; settings: 2 from the file, 1 from variables, 1 from flags\n"
	warns := "warning: setting wal-dir (" + path + ":2)"
	if err != nil || !strings.HasSuffix(out, want) || !strings.Contains(out, warns) {
		t.Errorf("%q, %v", out, err)
	}
	if out, err := run(nil, path, "--election-timeout=1"); err == nil || out != "" {
		t.Errorf("no member could start, but: %q, %v", out, err)
	}
	many := file(t, "nmae: a\nmax-learners: many\npre-vote: 1\nlease-max-keys: 0\nlog-level: loud\n"+
		"client-transport-security:\n  cert: x\n")
	_, err = run([]string{"ETCD_MAX_TXN_OPS=x"}, many, "--election-timeout=1", "--auto-compaction-mode=x")
	for _, want := range []string{
		"10 errors in the settings:\n", "ETCD_MAX_TXN_OPS", many + ":1: unknown setting \"nmae\"",
		many + ":2: invalid value for max-learners", many + ":3: invalid value for pre-vote",
		"--log-level is set by file " + many + ":5", many + ":7: unknown setting \"cert\"",
		"--election-timeout (1ms) must be", "--auto-compaction-mode",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("all mistakes at once, but not %q: %v", want, err)
		}
	}
	bindings := file(t, "bindings:\n  - dns: a\n    usre: b\n")
	_, err = run(nil, path, "--auth-config", bindings)
	var usage *exitError
	if want := bindings + `:3: unknown setting "usre"`; !errors.As(err, &usage) ||
		!strings.Contains(err.Error(), want) {
		t.Errorf("with a mistake in the bindings: %v", err)
	}
	if _, err = run(nil, path, "--auth-config", file(t, "bindings: [{dns: a, user: b}]")); err != nil {
		t.Errorf("with bindings: %v", err)
	}
	out, err = run(nil, "--help")
	if err != nil || !strings.Contains(out, "client-transport-security:") {
		t.Errorf("help: %q, %v", out, err)
	}
}
