package e2e

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

var (
	serverFlag  = flag.String("server", "", "`binary` to test (default: built now)")
	serveFlag   = flag.String("serve", "serve", "`arguments` that make the binary serve")
	foreignFlag = flag.Bool("foreign", false, "the binary is not leasehold")
	roundsFlag  = flag.Int("rounds", 5, "kills in the crash test")
	seedFlag    = flag.Uint64("seed", 0, "seed of the crash test (default: from the clock)")
)

// binary is the path of what is tested.
var binary string

// TestMain builds the binary once.
func TestMain(m *testing.M) {
	flag.Parse()
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	binary = *serverFlag
	if binary != "" {
		return m.Run(), nil
	}
	dir, err := os.MkdirTemp("", "leasehold-e2e-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "leasehold")
	if err := dependOnSources(); err != nil {
		return 0, err
	}
	build := exec.Command("go", "build", "-o", binary, "leasehold.dev/cmd/leasehold")
	out, err := build.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("build: %w\n%s", err, out)
	}
	return m.Run(), nil
}

// dependOnSources looks at every source file of the repository, because go test
// reuses a result until a file that the test looked at has changed, and it does
// not see what the build below reads.
func dependOnSources() error {
	return filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && d.Name() == ".git":
			return fs.SkipDir
		case filepath.Ext(path) == ".go" || d.Name() == "go.mod":
			_, err = os.Stat(path)
		}
		return err
	})
}

// ours skips a test when the binary is somebody else's.
func ours(t *testing.T) {
	t.Helper()
	if *foreignFlag {
		t.Skip("about leasehold's own words and exits")
	}
}

// patience is how long anything may take before a test gives up on it.
const patience = 30 * time.Second

// A member is a server process and what it keeps.
type member struct {
	t    *testing.T
	data string // data directory
	url  string // of the clients' port
	args []string
	log  string // file with all that it wrote

	cmd  *exec.Cmd
	done chan struct{} // closed when cmd has ended
	exit error         // set before done is closed
}

// newMember makes a member on free ports and a new directory, not yet started.
func newMember(t *testing.T, extra ...string) *member {
	t.Helper()
	dir := t.TempDir()
	m := &member{t: t, data: filepath.Join(dir, "data"), log: filepath.Join(dir, "log")}
	m.listen()
	m.args = append(m.args, extra...)
	t.Cleanup(m.cleanup)
	return m
}

// listen gives the member ports that are free now.
func (m *member) listen() {
	client, peer := "http://"+freeAddr(m.t), "http://"+freeAddr(m.t)
	m.url = client
	m.args = append(strings.Fields(*serveFlag),
		"--data-dir", m.data,
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
		"--initial-cluster", "default="+peer)
}

func freeAddr(t *testing.T) string {
	t.Helper()
	// Below the ports that the kernel gives to outgoing connections, so that none
	// takes it before the server starts.
	for {
		addr := fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(20_000))
		if l, err := net.Listen("tcp", addr); err == nil {
			l.Close()
			return addr
		}
	}
}

// startMember starts a new member and waits until it serves.
func startMember(t *testing.T, extra ...string) *member {
	t.Helper()
	m := newMember(t, extra...)
	m.start()
	return m
}

// launch starts the process and does not wait for anything.
func (m *member) launch() {
	m.t.Helper()
	out, err := os.OpenFile(m.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		m.t.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command(binary, m.args...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	done := make(chan struct{})
	m.cmd, m.done = cmd, done
	go func() {
		m.exit = cmd.Wait()
		close(done)
	}()
}

// start launches the process and waits until /readyz says ok.
func (m *member) start() {
	m.t.Helper()
	m.launch()
	c := http.Client{Timeout: time.Second}
	eventually(m.t, "the member serves", func() error {
		select {
		case <-m.done:
			m.t.Fatalf("the member ended at its start: %v\n%s", m.exit, m.output())
		default:
		}
		r, err := c.Get(m.url + "/readyz")
		if err != nil {
			return err
		}
		defer r.Body.Close()
		if r.StatusCode != http.StatusOK {
			return errors.New(r.Status)
		}
		return nil
	})
}

// kill ends the process as a power cut would.
func (m *member) kill() { m.end(syscall.SIGKILL) }

// end sends a signal and returns how the process ended.
func (m *member) end(sig syscall.Signal) error {
	m.t.Helper()
	if err := m.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		m.t.Fatal(err)
	}
	return m.wait()
}

// wait returns how the process ended.
func (m *member) wait() error {
	m.t.Helper()
	select {
	case <-m.done:
		return m.exit
	case <-time.After(patience):
		m.t.Fatalf("the member does not end\n%s", m.output())
		return nil
	}
}

func (m *member) output() string {
	text, err := os.ReadFile(m.log)
	if err != nil {
		m.t.Fatal(err)
	}
	return string(text[max(0, len(text)-4000):])
}

func (m *member) cleanup() {
	if m.cmd == nil {
		return
	}
	m.kill()
	if m.t.Failed() {
		m.t.Logf("the end of what the member wrote:\n%s", m.output())
	}
}

// client returns a new clientv3 client of the member.
func (m *member) client() *clientv3.Client {
	m.t.Helper()
	c, err := clientv3.New(clientv3.Config{
		Endpoints: []string{m.url}, DialTimeout: patience, Logger: zap.NewNop(),
	})
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = c.Close() }) // a test may have closed it
	return c
}

// eventually tries f until it returns nil, and fails with its last error.
func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	timeout := time.After(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-timeout:
			t.Fatalf("%s: not within %v: %v", what, patience, err)
		}
	}
}

// receive takes a value from a channel, within reason.
func receive[T any](t *testing.T, what string, c <-chan T) T {
	t.Helper()
	select {
	case v, ok := <-c:
		if !ok {
			t.Fatalf("%s: the channel was closed", what)
		}
		return v
	case <-time.After(patience):
		t.Fatalf("%s: nothing came", what)
		panic("unreachable")
	}
}
