package serve

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"leasehold.dev/internal/listen"
	"leasehold.dev/server"
)

// outcome is the result of running a command line.
type outcome struct {
	cfg            server.Config
	ran            bool
	stdout, stderr string
	err            error
}

// try runs the command with a fake member.
func try(t *testing.T, env []string, args ...string) outcome {
	t.Helper()
	var o outcome
	var stdout, stderr bytes.Buffer
	c := command(process{
		env:      func() []string { return env },
		hostname: func() string { return "myhost" },
		run: func(_ context.Context, cfg server.Config, _ *joiner, _ *reloader) error {
			o.cfg, o.ran = cfg, true
			cfg.Logger.Info("ran", "n", 1, "took", 1500*time.Microsecond)
			return nil
		},
	})
	c.SetOut(&stdout)
	c.SetErr(&stderr)
	// cobra would replace nil with the arguments of the test binary
	c.SetArgs(append([]string{}, args...))
	o.err = c.ExecuteContext(t.Context())
	o.stdout, o.stderr = stdout.String(), stderr.String()
	return o
}

// etcdFlags reads the list of etcd's flags with their names and defaults, as printed by etcd's
// help.
func etcdFlags(t *testing.T) map[string]string {
	t.Helper()
	f, err := os.Open("testdata/etcd_flags.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	flags := make(map[string]string)
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		name, def, _ := strings.Cut(lines.Text(), " ")
		flags[name] = def
	}
	if len(flags) < 100 {
		t.Fatalf("only %d flags in the list", len(flags))
	}
	return flags
}

// TestAcceptsEtcdFlags checks that every etcd flag is accepted with etcd's default and without a
// warning. The exception is --cors, whose default in etcd allows every origin.
func TestAcceptsEtcdFlags(t *testing.T) {
	known := newFlags()
	var args []string
	for name, def := range etcdFlags(t) {
		x := known.fs.Lookup(name)
		if x == nil {
			t.Errorf("etcd's --%s is unknown", name)
			continue
		}
		switch {
		case def == "'math.MaxUint32'":
			def = "4294967295"
		case def == "" || name == "data-dir" || name == "log-rotation-config-json" || name == "cors":
			continue // etcd's help shows no default, or one that cannot be passed as a value
		}
		args = append(args, "--"+name+"="+strings.Trim(def, "'"))
	}
	o := try(t, nil, args...)
	if o.err != nil || !o.ran {
		t.Fatalf("error %v", o.err)
	}
	if strings.Contains(o.stderr, "is accepted but ignored") {
		t.Errorf("a default is warned of: %s", o.stderr)
	}
}

// TestWarnsOfIgnoredFlags checks that an ignored flag causes a single warning with the reason.
func TestWarnsOfIgnoredFlags(t *testing.T) {
	for _, i := range ignored {
		arg := "--" + i.name + "=0"
		if i.def == "0" || i.def == "false" {
			arg = "--" + i.name + "=1"
		}
		o := try(t, nil, arg, arg)
		if o.err != nil || strings.Count(o.stderr, "--"+i.name+" is accepted") != 1 || i.why == "" {
			t.Errorf("%s: %v, %s", i.name, o.err, o.stderr)
		}
	}
}

// TestSyntax checks that flags follow etcd's syntax.
func TestSyntax(t *testing.T) {
	for _, c := range []struct {
		line string
		get  func(server.Config) any
		want any
	}{
		{"--name=a", name, "a"},
		{"--name a", name, "a"},
		{"-name a", name, "a"},
		{"-name=a", name, "a"},
		{"--name=a --name=b", name, "b"},
		{"--name -a", name, "-a"},
		{"--name a --data-dir d", func(c server.Config) any { return c.DataDir }, "d"},
		{"--name a", func(c server.Config) any { return c.DataDir }, "a.leasehold"},
		{"", ui, "on"},
		{"--ui=read-only", ui, "read-only"},
		{"--enable-pprof", pprofOn, true},
		{"-enable-pprof", pprofOn, true},
		{"--enable-pprof=true --name a", pprofOn, true},
		{"--enable-pprof=false", pprofOn, false},
		{"--enable-pprof --name a", name, "a"},
		{"--election-timeout 2500", election, 2500 * time.Millisecond},
		{"--election-timeout 2s", election, 2 * time.Second},
		{"--name=a", adaptive, true},
		{"--election-timeout 1s", adaptive, false},
		{"--heartbeat-interval 100", adaptive, false},
		{"--quota-backend-bytes=0", quota, int64(2 << 30)},
		{"--quota-backend-bytes=-1", quota, int64(-1)},
		{"--quota-backend-bytes=100000", quota, int64(100_000)},
		{"", retained, server.Compaction{
			Mode: "periodic", Period: time.Hour, Revisions: 10_000,
		}},
		{"--auto-compaction-retention 3", retained, server.Compaction{
			Mode: "periodic", Period: 3 * time.Hour,
		}},
		{"--auto-compaction-retention 0", retained, server.Compaction{Mode: "periodic"}},
		{"--auto-compaction-mode periodic", retained, server.DefaultConfig().Compaction},
		{"--auto-compaction-mode revision", retained, server.Compaction{
			Mode: "revision", Revisions: 10_000,
		}},
		{"--auto-compaction-mode revision --auto-compaction-retention 0", retained, server.Compaction{
			Mode: "revision",
		}},
		{
			"--snapshot-count=0", func(c server.Config) any { return c.Raft.SnapshotCount },
			uint64(10_000),
		},
		{"--max-concurrent-streams 5", func(c server.Config) any {
			return c.GRPC.MaxConcurrentStreams
		}, uint32(5)},
		{"--lease-min-ttl 1s", func(c server.Config) any { return c.Lease.MinTTL }, time.Second},
		{"--lease-max-cache-ttl 9s", func(c server.Config) any {
			return c.Lease.MaxCacheTTL
		}, 9 * time.Second},
		{"--host-whitelist a,b,a", func(c server.Config) any {
			return strings.Join(c.HTTP.HostWhitelist, "+")
		}, "a+b"},
		{
			"--initial-cluster-state existing", func(c server.Config) any { return c.Cluster.State },
			"existing",
		},
		{"--join=a:1 --auto-tls --peer-auto-tls", ui, "on"}, // it chooses encrypted URLs
		{
			"--tls-min-version TLS1.3", func(c server.Config) any { return c.PeerTLS.MinVersion },
			"TLS1.3",
		},
	} {
		o := try(t, nil, strings.Fields(c.line)...)
		if o.err != nil {
			t.Errorf("%s: %v", c.line, o.err)
			continue
		}
		if got := c.get(o.cfg); got != c.want {
			t.Errorf("%s: %v, want %v", c.line, got, c.want)
		}
	}
}

func name(c server.Config) any     { return c.Name }
func ui(c server.Config) any       { return c.HTTP.UI }
func pprofOn(c server.Config) any  { return c.HTTP.Pprof }
func election(c server.Config) any { return c.Raft.ElectionTimeout }
func adaptive(c server.Config) any { return c.Raft.Adaptive }
func quota(c server.Config) any    { return c.Limits.QuotaBackendBytes }
func retained(c server.Config) any { return c.Compaction }

// TestMistakes checks that a mistake is reported with advice and etcd's exit code, and that no
// member starts.
func TestMistakes(t *testing.T) {
	for line, want := range map[string]string{
		"--nmae=a":                           "unknown flag --nmae; did you mean --name?",
		"--listen-client-url=http://a:1":     "did you mean --listen-client-urls?",
		"--wal":                              "unknown flag --wal",
		"--qqqqqqqqqqqqqqqq":                 "see leasehold serve --help",
		"-n a":                               "unknown flag --n",
		"gateway":                            `"gateway" is not a flag`,
		"--name=a start":                     `"start" is not a flag`,
		"--":                                 `"--" is not a flag`,
		"--name":                             "flag --name needs a value",
		"--enable-pprof=maybe":               `for --enable-pprof: it must be true or false`,
		"--memory-mlock=maybe":               `invalid value "maybe" for --memory-mlock`,
		"--snapshot-count=x":                 `for --snapshot-count: it must be an integer`,
		"--heartbeat-interval=x":             "neither a number of milliseconds nor a duration",
		"--heartbeat-interval=-1":            "out of range",
		"--max-concurrent-streams=-1":        "4294967295",
		"--listen-client-urls=localhost:1":   "--listen-client-urls: listen: bad URL",
		"--listen-client-urls=http://h.x:1":  "listen on an IP address",
		"--listen-client-urls=https://:1":    "--cert-file and --key-file, or --auto-tls",
		"--initial-cluster=a":                `"a" is not NAME=URL`,
		"--initial-cluster=a=http://x":       "needs a host and a port",
		"--initial-cluster-state=old":        "to new or existing",
		"--auto-compaction-mode=weekly":      "must be periodic or revision",
		"--auto-compaction-retention=x":      "neither a number of hours nor a duration",
		"--log-level=loud":                   "must be debug, info, warn or error",
		"--log-format=xml":                   "must be json or console",
		"--config-file=missing.yml":          "--config-file: open missing.yml",
		"--cert-file=a":                      "a certificate file needs a key file",
		"--cors=*":                           `--cors "*": write each allowed origin`,
		"--auto-tls":                         "use https:// in --listen-client-urls",
		"--peer-auto-tls":                    "use https:// in --listen-peer-urls",
		"--election-timeout=400":             "five times",
		"--name= --initial-cluster-token= -": `"-" is not a flag`,

		"--replace": "--replace requires --join",
		"--join a:1 --initial-cluster default=http://localhost:2380": "omit --initial-cluster",
		"--max-learners=-1":         "--max-learners must not be negative",
		"--peer-client-cert-file=a": "client key file",
		"--join-user a":             "require --join",
		"--join a:1 --join-user a":  "--join-user and --join-password-file must be set together",
		"--join a:1 --join-user a --join-password-file b --join-token-file c": "are mutually exclusive",
	} {
		o := try(t, nil, strings.Fields(line)...)
		var usage *exitError
		if !errors.As(o.err, &usage) || usage.ExitCode() != 2 || o.ran ||
			!strings.Contains(o.err.Error(), want) {
			t.Errorf("%s: %v (ran %t), want %q", line, o.err, o.ran, want)
		}
	}
}

// TestEnvironment checks that flags take precedence over LEASEHOLD_ variables, and those over ETCD_
// variables. A variable with either prefix that names no flag causes a warning, unless another
// command uses it. All other variables are ignored.
func TestEnvironment(t *testing.T) {
	env := []string{
		"ETCD_NAME=e", "LEASEHOLD_NAME=l",
		"ETCD_DATA_DIR=e", "LEASEHOLD_DATA_DIR=",
		"LEASEHOLD_INITIAL_CLUSTER_TOKEN=l", "ETCD_INITIAL_CLUSTER_TOKEN=e",
		"ETCD_ENABLE_PPROF=true", "ETCD_METRICS=extensive",
		"LEASEHOLD_ENDPOINTS=a:1", "LEASEHOLD_TOKEN=7", // used by clients and leasehold run
		"ETCD_NONSENSE=1", "LEASEHOLD_NONSENSE=2", "ETCDCTL_API=3", "HOME=/", "junk",
	}
	o := try(t, env, "--initial-cluster-token", "f")
	if o.err != nil {
		t.Fatal(o.err)
	}
	c := o.cfg
	if c.Name != "l" || c.DataDir != "e" || c.Cluster.Token != "f" || !c.HTTP.Pprof {
		t.Errorf("name %q, data %q, token %q, pprof %t", c.Name, c.DataDir, c.Cluster.Token,
			c.HTTP.Pprof)
	}
	for _, want := range []string{
		"variable ETCD_NONSENSE does not match any flag", "variable LEASEHOLD_NONSENSE does not match any flag",
		"--metrics is accepted but ignored",
	} {
		if strings.Count(o.stderr, want) != 1 {
			t.Errorf("no warning %q in %s", want, o.stderr)
		}
	}
	if n := strings.Count(o.stderr, `"level":"warn"`); n != 3 {
		t.Errorf("%d warnings: %s", n, o.stderr)
	}
	o = try(t, []string{"ETCD_SNAPSHOT_COUNT=x"})
	if o.err == nil || !strings.Contains(o.err.Error(), `"x" for ETCD_SNAPSHOT_COUNT`) {
		t.Errorf("a bad variable: %v", o.err)
	}
}

// TestAdvertised checks that advertised URLs default to the listen URLs, except for wildcard
// addresses.
func TestAdvertised(t *testing.T) {
	for _, c := range []struct{ line, client, peer string }{
		{"", "http://localhost:2379", "http://localhost:2380"},
		{"--listen-client-urls http://127.0.0.1:9", "http://127.0.0.1:9", "http://localhost:2380"},
		{"--listen-peer-urls http://0.0.0.0:9", "http://localhost:2379", "http://myhost:9"},
		{
			"--listen-client-urls http://[::]:9,http://0.0.0.0:9,http://:9", "http://myhost:9",
			"http://localhost:2380",
		},
		{"--listen-client-urls unix://a:1", "unix://a:1", "http://localhost:2380"},
		{
			"--listen-client-urls http://0.0.0.0:9 --advertise-client-urls http://x:9", "http://x:9",
			"http://localhost:2380",
		},
	} {
		o := try(t, nil, strings.Fields(c.line)...)
		if o.err != nil {
			t.Errorf("%s: %v", c.line, o.err)
			continue
		}
		client := listen.JoinURLs(o.cfg.URLs.AdvertiseClient)
		peer := listen.JoinURLs(o.cfg.URLs.AdvertisePeer)
		if client != c.client || peer != c.peer {
			t.Errorf("%s: advertises %s and %s", c.line, client, peer)
		}
		if guessed := strings.Contains(client+peer, "myhost"); guessed !=
			strings.Contains(o.stderr, "is not set; advertising") {
			t.Errorf("%s: log %s", c.line, o.stderr)
		}
	}
}

// TestHelpAndVersion checks that the help lists every flag, and that the output of --version starts
// with the same line as etcd's.
func TestHelpAndVersion(t *testing.T) {
	for _, arg := range []string{"--help", "-h", "-help"} {
		o := try(t, nil, arg)
		if o.err != nil || o.ran {
			t.Fatalf("%s: %v", arg, o.err)
		}
		newFlags().fs.VisitAll(func(x *flag.Flag) {
			v, isIgnored := x.Value.(*ignoredValue)
			if isIgnored && v.flag.hidden {
				return
			}
			if !strings.Contains(o.stdout, "--"+x.Name) {
				t.Errorf("%s: no --%s", arg, x.Name)
			}
		})
	}
	o := try(t, nil, "--version")
	lines := strings.Split(o.stdout, "\n")
	if o.err != nil || o.ran || lines[0] != "etcd Version: 3.7.3" ||
		!strings.HasPrefix(lines[1], "Leasehold Version: ") {
		t.Errorf("%q, %v", o.stdout, o.err)
	}
}

// TestArgs checks that the binary behaves like etcd if it is run under that name.
func TestArgs(t *testing.T) {
	for line, want := range map[string]string{
		"/usr/bin/etcd":                         "serve",
		"etcd --name a":                         "serve --name a",
		"etcd.exe -h":                           "serve -h",
		"etcd --nonsense":                       "serve --nonsense",
		"etcd get a":                            "get a",
		"leasehold":                             "",
		"leasehold --help":                      "--help",
		"leasehold --version":                   "serve --version",
		"leasehold -version":                    "serve -version",
		"leasehold --name=a":                    "serve --name=a",
		"leasehold -data-dir d":                 "serve -data-dir d",
		"leasehold serve --name a":              "serve --name a",
		"leasehold put a b":                     "put a b",
		"leasehold --endpoints x get a":         "--endpoints x get a",
		"leasehold -w json get a":               "-w json get a",
		"leasehold --max-request-bytes 9 put a": "--max-request-bytes 9 put a",
		"leasehold --max-request-bytes 9 --name a": "serve --max-request-bytes 9 " +
			"--name a",
	} {
		if got := strings.Join(Args(strings.Fields(line)), " "); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
	if got := Args(nil); got != nil {
		t.Errorf("no arguments: %q", got)
	}
}

// TestComplete checks that shell completion offers flags, and files as the values of flags.
func TestComplete(t *testing.T) {
	offers, _ := complete(nil, nil, "--listen-c")
	if len(offers) != 2 || !strings.HasPrefix(offers[0], "--listen-client-http-urls\t") {
		t.Errorf("offers %q", offers)
	}
	if offers, _ := complete(nil, nil, "--wal"); len(offers) != 0 {
		t.Errorf("an ignored flag is offered: %q", offers)
	}
	if offers, _ := complete(nil, nil, "dir/"); len(offers) != 0 {
		t.Errorf("offers for a value: %q", offers)
	}
}

// TestLog checks that the log is written to the configured outputs in etcd's format.
func TestLog(t *testing.T) {
	file := t.TempDir() + "/log"
	o := try(t, nil, "--log-outputs", "stdout,"+file)
	data, err := os.ReadFile(file)
	if err != nil || o.err != nil {
		t.Fatal(err, o.err)
	}
	want := `"level":"info","msg":"ran","n":1,"took":"1.5ms"}`
	for _, text := range []string{o.stdout, string(data)} {
		if !strings.HasPrefix(text, `{"ts":"2`) || !strings.HasSuffix(text, want+"\n") {
			t.Errorf("log %q", text)
		}
	}
	if o.stderr != "" {
		t.Errorf("standard error %q", o.stderr)
	}
	if o := try(t, nil, "--log-level", "error", "--wal-dir", "x"); o.stderr != "" {
		t.Errorf("at level error: %q", o.stderr)
	}
	if o := try(t, nil, "--log-format", "console"); !strings.Contains(o.stderr, `level=INFO msg=ran`) {
		t.Errorf("console: %q", o.stderr)
	}
	if o := try(t, nil, "--log-outputs", file+"/log"); o.err == nil || o.ran {
		t.Errorf("a log that cannot be written: %v", o.err)
	}
}

// FuzzFlags checks that no command line makes the parser panic, and that validating the resulting
// configuration does not panic either.
func FuzzFlags(f *testing.F) {
	f.Add("--name=a\n-data-dir\nb\n--enable-pprof")
	f.Add("--initial-cluster\na=http://a:1,a=http://b:2\n--auto-compaction-retention=3")
	f.Add("--help")
	f.Fuzz(func(t *testing.T, text string) {
		flags := newFlags()
		err := flags.parse(strings.Split(text, "\n"))
		var usage *exitError
		if err != nil {
			if !errors.As(err, &usage) && !errors.Is(err, errHelp) {
				t.Fatalf("%q: %v is no usage error", text, err)
			}
			return
		}
		cfg, _, err := flags.config("host")
		if err == nil {
			_ = cfg.Validate()
		}
		flags.help(io.Discard)
	})
}
