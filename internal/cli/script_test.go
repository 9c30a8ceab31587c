package cli

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/rogpeppe/go-internal/txtar"

	"leasehold.dev/internal/cli/app"
	"leasehold.dev/test/harness"
	"leasehold.dev/test/tier"
)

// Each script in testdata/script runs against its own server. Scripts named three_* run against a
// cluster of three members, and only in the campaign. Servers and commands run in the test process,
// except for ctl -process and exec. The transcripts were recorded with etcdctl 3.7.3 and etcd
// 3.7.3:
//
//	go test ./internal/cli -run TestScripts -server=etcd -client=etcdctl -update
//
// A script's file auth-NAME.yaml is the --auth-config of the server NAME. Scripts named own_* show
// where leasehold deliberately differs.
var (
	serverFlag = flag.String("server", "", "etcd-compatible server binary (default: leasehold)")
	clientFlag = flag.String("client", "", "client to run instead of leasehold, e.g. etcdctl")
	updateFlag = flag.Bool("update", false, "write what the client prints into the scripts")
)

const scriptDir = "testdata/script"

// patience is how long a server or a script's command can take.
const patience = time.Minute

func TestMain(m *testing.M) {
	// must be called before a test server starts to log; the server then leaves the logger alone
	app.GrpcLog()
	os.Setenv("GRPC_GO_LOG_SEVERITY_LEVEL", "error")
	testscript.Main(tests{m}, map[string]func(){
		"leasehold": func() { os.Exit(Main(app.OS())) },
	})
}

// tests runs the tests of this binary. A script's leasehold command runs the same binary with other
// flags.
type tests struct{ *testing.M }

func (t tests) Run() int {
	harness.Parallel()
	code := t.M.Run()
	if built.dir != "" {
		_ = os.RemoveAll(built.dir)
	}
	return code
}

// TestScripts checks that every command prints exactly what etcdctl prints and exits with the same
// code. The transcripts were recorded with etcdctl.
func TestScripts(t *testing.T) {
	tier.RealTime(t)
	t.Parallel()
	var server []string // nil to run the server in this process
	if *serverFlag != "" || tier.InCampaign() {
		server = serverBinary(t)
	}
	client := "leasehold"
	if *clientFlag != "" {
		client = *clientFlag
	}
	testscript.Run(t, testscript.Params{
		Dir:                 scriptDir,
		RequireExplicitExec: true,
		Setup: func(env *testscript.Env) error {
			members := newMembers(env)
			start := startAll
			if *serverFlag == "" && len(members) == 1 {
				start = startHere
			}
			if len(members) == 1 || server != nil { // otherwise the script is skipped
				if err := start(env, server, members); err != nil {
					return err
				}
			}
			var all []string
			said := &session{grabbed: map[string]string{}}
			for i, m := range members {
				name := fmt.Sprintf("ADDR%d", i+1)
				env.Setenv(name, m.client)
				all = append(all, m.client)
				if i > 0 {
					said.grabbed[m.client] = "<" + name + ">"
				}
			}
			env.Setenv("CTL", client)
			env.Setenv("ADDR", members[0].client)
			env.Setenv("PEER", members[0].peer)
			env.Setenv("ETCDCTL_ENDPOINTS", strings.Join(all, ","))
			// allows for a busy machine
			env.Setenv("ETCDCTL_COMMAND_TIMEOUT", (patience / 2).String())
			env.Values[sessionKey{}] = said
			return nil
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "leasehold":
				return *clientFlag == "", nil
			case "etcd":
				return *serverFlag != "", nil
			case "campaign":
				return tier.InCampaign(), nil
			}
			return false, errors.New("no such condition")
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"ctl":        cmdCtl,
			"grab":       cmdGrab,
			"transcript": cmdTranscript,
		},
	})
}

// session is the state of a script.
type session struct {
	text    strings.Builder   // the transcript
	last    string            // standard output of the last command
	grabbed map[string]string // maps each value that varies from run to run to its placeholder
}

type sessionKey struct{}

func sessionOf(ts *testscript.TestScript) *session {
	return ts.Value(sessionKey{}).(*session)
}

// cmdCtl runs the client and adds its output to the transcript.
//
//	ctl [-in file] [-hold] [-until regexp] [-mute] [-process] args...
//
// -in sends a script file to standard input. -hold leaves standard input open at the end of the
// file. -until interrupts the client once its output matches. -mute omits output from the
// transcript, because its order is random. -process runs leasehold in its own process, because the
// command names files relative to the script's directory.
func cmdCtl(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("the transcript tells the exit code; do not negate ctl")
	}
	fs := flag.NewFlagSet("ctl", flag.ContinueOnError)
	in := fs.String("in", "", "")
	hold := fs.Bool("hold", false, "")
	until := fs.String("until", "", "")
	mute := fs.Bool("mute", false, "")
	apart := fs.Bool("process", false, "")
	ts.Check(fs.Parse(args))
	stdin, feed, err := os.Pipe()
	ts.Check(err)
	defer stdin.Close()
	defer feed.Close()
	var stdout, stderr capture
	c := &invocation{
		args: fs.Args(), env: scriptEnv(ts), stdin: stdin, stdout: &stdout, stderr: &stderr,
	}
	if *until != "" {
		stdout.on = regexp.MustCompile(*until)
	}
	if *in != "" {
		input := ts.ReadFile(*in)
		_, _ = io.WriteString(feed, input) // fits into the pipe's buffer
	}
	if !*hold {
		feed.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var exit string // empty on success
	if *apart || *clientFlag != "" {
		exit, err = c.apart(ctx, ts)
		ts.Check(err)
	} else {
		exit = c.here(ctx)
	}
	if ctx.Err() != nil {
		ts.Fatalf("%q did not end; it printed\n%s%s", fs.Args(), stdout.String(), stderr.String())
	}
	s := sessionOf(ts)
	s.last = stdout.String()
	if *mute {
		if exit != "" {
			ts.Fatalf("%q: %s; it printed\n%s%s", fs.Args(), exit, stdout.String(), stderr.String())
		}
		return
	}
	fmt.Fprintf(&s.text, "$ %s\n%s", strings.Join(quoteAll(fs.Args()), " "), stdout.String())
	for line := range strings.Lines(stderr.String()) {
		// The log line that etcdctl prints from the client library, and the message that leasehold
		// prints instead. Leasehold prints it only if a connection attempt failed before the
		// timeout.
		theirs := *clientFlag != "" && strings.HasPrefix(line, `{"level":`)
		ours := ts.Name() != "own_unreachable" && strings.HasPrefix(line, "Cause: ")
		slow := strings.HasPrefix(line, "Waiting for ") // printed after waiting for a second
		if !theirs && !ours && !slow {
			fmt.Fprintf(&s.text, "2> %s", line)
		}
	}
	if exit != "" {
		fmt.Fprintf(&s.text, "[%s]\n", exit)
	}
}

// scriptEnv returns the script's variables that clients use. The dial timeout includes the login,
// which takes a long time on a busy machine.
func scriptEnv(ts *testscript.TestScript) []string {
	env := []string{
		"PATH=" + ts.Getenv("PATH"), "HOME=" + ts.Getenv("HOME"),
		"ETCDCTL_DIAL_TIMEOUT=" + patience.String(),
	}
	for _, name := range []string{
		"ENDPOINTS", "WRITE_OUT", "HEX", "COMMAND_TIMEOUT", "WATCH_KEY", "WATCH_RANGE_END",
	} {
		for _, prefix := range app.EnvPrefixes {
			if v := ts.Getenv(prefix + name); v != "" {
				env = append(env, prefix+name+"="+v)
			}
		}
	}
	return env
}

func lookPath(path, name string) (string, error) {
	for _, dir := range filepath.SplitList(path) {
		if p := filepath.Join(dir, name); exec.Command(p).Path != "" {
			if st, err := os.Stat(p); err == nil && !st.IsDir() {
				return p, nil
			}
		}
	}
	return "", fmt.Errorf("%s is not in %s", name, path)
}

func quoteAll(args []string) []string {
	var out []string
	for _, a := range args {
		if a == "" || strings.ContainsAny(a, " '\"$") {
			a = "'" + strings.ReplaceAll(a, "'", "''") + "'"
		}
		out = append(out, a)
	}
	return out
}

// cmdGrab extracts a value that differs between runs from the last output. It stores the value in a
// script variable and replaces it in the transcript.
//
//	grab NAME regexp-with-one-group
func cmdGrab(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: grab NAME regexp")
	}
	s := sessionOf(ts)
	m := regexp.MustCompile(args[1]).FindStringSubmatch(s.last)
	if m == nil {
		ts.Fatalf("%s does not match %q", args[1], s.last)
	}
	ts.Setenv(args[0], m[1])
	s.grabbed[m[1]] = "<" + args[0] + ">"
	// The JSON and fields formats print the same number in decimal.
	if id, err := strconv.ParseUint(m[1], 16, 64); err == nil && len(m[1]) > 10 {
		s.grabbed[strconv.FormatUint(id, 10)] = "<" + args[0] + ">"
	}
}

// cmdTranscript compares the transcript so far with one of the script's files.
func cmdTranscript(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: transcript file")
	}
	s := sessionOf(ts)
	got := s.text.String()
	for value, name := range s.grabbed {
		got = strings.ReplaceAll(got, value, name)
	}
	got = normalize(got, ts.Getenv("ADDR"), ts.Getenv("PEER"), ts.Getenv("WORK"))
	if *updateFlag {
		ts.Check(rewrite(filepath.Join(scriptDir, ts.Name()+".txtar"), args[0], got))
		return
	}
	if want := ts.ReadFile(args[0]); got != want {
		ts.Check(os.WriteFile(ts.MkAbs("got"), []byte(got), 0o600))
		ts.Check(ts.Exec("diff", "-a", "-u", ts.MkAbs(args[0]), ts.MkAbs("got")))
	}
}

// varying replaces text that differs between runs or between types of server.
var varying = []struct{ re, with string }{
	{`"cluster_id":("?)[0-9a-f]+"?`, `"cluster_id":${1}CLUSTER$1`},
	{`(cluster_id|member_id|raft_term): \d+`, `$1: N`}, // in YAML
	{`"member_id":("?)[0-9a-f]+"?`, `"member_id":${1}MEMBER$1`},
	{`"(ClusterID|MemberID)" : [0-9a-f]+`, `"$1" : ID`},
	{`("raft_term":|"RaftTerm" : |"raftTerm":|"term":")\d+`, `${1}TERM`},
	{`("raft\w*[iI]ndex":|"Raft\w*Index" : )\d+`, `${1}INDEX`},
	{`("dbSize\w*":|"DBSize\w*" : )\d+`, `${1}SIZE`},
	{`("state_bytes":)\d+`, `${1}SIZE`},
	{`("hash":|"Hash" : )\d+`, `${1}HASH`},
	{`("Leader" : |"leader":)\d+`, `${1}MEMBER`},
	// The remaining part of a 100-second TTL depends on how fast the machine is.
	{`remaining\(\d+s\)`, `remaining(LEFT)`},
	{`"ttl":\d+,"granted-ttl":100`, `"ttl":LEFT,"granted-ttl":100`},
	{`("remaining_ms" : )\d+`, `${1}LEFT`},
	{`"(cluster_id|member_id|term)" : \d+`, `"$1" : ID`},
	{`"TTL" : \d+\n"GrantedTTL" : 100`, "\"TTL\" : LEFT\n\"GrantedTTL\" : 100"},
	// The remaining part of a one-hour TTL also varies, which shifts the columns after it.
	{`(1h0m0s[ │]+)(5\dm[.\d]+s|1h0m0s) *`, `${1}LEFT `},
	{`REMAINING +`, `REMAINING `},
	{`\nremaining +\S+`, "\nremaining LEFT"},
	{`("Remaining" : |"remaining_ms":")\d+`, `${1}LEFT`},
	{`[\d.]+ [kMG]?B\b`, `SIZE`},
	{`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ`, `DATE`},
	{`"loaded_unix_ms":"\d+"`, `"loaded_unix_ms":"DATE"`},
	{`(<M\d>) +`, `$1 `}, // a member ID may have only 15 digits
	{`\bSIZE([,│ ]+)\d+%`, `SIZE${1}N%`},
	{
		`(true|false)([,│ ]+)(true|false)([,│ ]+)\d+([,│ ]+)\d+([,│ ]+)\d+`,
		`$1$2$3${4}TERM${5}INDEX${6}INDEX`,
	},
	{`lease [0-9a-f]{16} (of "me" (?:has|holds)|of owner "a"|is first)`, `lease LEASE $1`},
	{ // the client may detect the end of the lease or the deletion of its key first
		`lost: its lease was revoked|the lease is gone: revoked by "127\.0\.0\.1:\d+"`,
		`lost: its lease was revoked`,
	},
	{`gone: revoked by "127\.0\.0\.1:\d+"`, `gone: revoked by "CALLER"`},
	{`is first in the wait queue, of "[^"]*"`, `is first in the wait queue, of HOST`},
	{`\b(Member|cluster) +`, `$1 `}, // an ID is padded to 16 digits
	{`(took[ =":]+|"Took" : |responds in )[\d.]+[nµm]?s`, `${1}TIME`},
	{`(true|false)( *│ *)[\d.]+[nµm]?s`, `${1}${2}TIME`},
	{`("[sS]torageVersion"[ :]+)"[\d.]*"`, `${1}"STORAGE"`},
	{`\b3\.\d+\.\d+, \d+\.\d+\.\d+`, `VERSION, STORAGE`},
	{`─+`, `─`},
	{` +│`, ` │`},
	{`│ +`, `│ `},
}

func normalize(text, addr, peer, work string) string {
	text = strings.ReplaceAll(text, "http://"+addr, "http://<ADDR>")
	text = strings.ReplaceAll(text, addr, "<ADDR>")
	text = strings.ReplaceAll(text, peer, "<PEER>")
	text = strings.ReplaceAll(text, work, "<WORK>")
	text = strings.ReplaceAll(text, "\x00", `\0`) // golden files should be text
	for _, v := range varying {
		text = regexp.MustCompile(v.re).ReplaceAllString(text, v.with)
	}
	return text
}

// rewrite replaces one file in a script.
func rewrite(script, file, text string) error {
	b, err := os.ReadFile(script)
	if err != nil {
		return err
	}
	a := txtar.Parse(b)
	for i := range a.Files {
		if a.Files[i].Name == file {
			a.Files[i].Data = []byte(text)
			return os.WriteFile(script, txtar.Format(a), 0o600)
		}
	}
	return fmt.Errorf("%s has no file %s", script, file)
}
