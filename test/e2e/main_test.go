package e2e

import (
	"errors"
	"flag"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"leasehold.dev/test/harness"
	"leasehold.dev/test/process"
)

var (
	roundsFlag = flag.Int("rounds", 5, "kills in the crash test")
	seedFlag   = flag.Uint64("seed", 0, "seed of the crash test (default: from the clock)")
)

// server is the binary under test.
var server harness.Binary

// TestMain removes files shared by the tests.
func TestMain(m *testing.M) { os.Exit(server.Main(m)) }

// patience is the timeout for any operation in a test.
const patience = harness.Patience

// A member is a server process together with its files.
type member struct {
	t    *testing.T
	data string // data directory
	url  string // of the client port
	peer string // URL of the peer port, if a test needs it
	args []string
	log  string // file with the process's output

	*process.Process // the last started process, or nil
}

// newMember creates a member with free ports and an empty directory, without starting it.
func newMember(t *testing.T, extra ...string) *member {
	t.Helper()
	dir := t.TempDir()
	m := &member{t: t, data: filepath.Join(dir, "data"), log: filepath.Join(dir, "log")}
	m.listen()
	m.args = append(m.args, extra...)
	t.Cleanup(m.cleanup)
	return m
}

// listen assigns free ports to the member.
func (m *member) listen() {
	client, peer := "http://"+process.MustFreeAddr(), "http://"+process.MustFreeAddr()
	m.url = client
	m.args = []string{
		"serve",
		"--data-dir", m.data,
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
		"--initial-cluster", "default=" + peer,
	}
}

// startMember starts a new member and waits until it is serving.
func startMember(t *testing.T, extra ...string) *member {
	t.Helper()
	m := newMember(t, extra...)
	m.start()
	return m
}

// launch starts the process without waiting.
func (m *member) launch() {
	m.t.Helper()
	p, err := process.Start(exec.Command(server.Path(m.t), m.args...), m.log, "")
	if err != nil {
		m.t.Fatal(err)
	}
	m.Process = p
}

// start launches the process and waits until /readyz reports ok.
func (m *member) start() {
	m.t.Helper()
	m.launch()
	c := http.Client{Timeout: patience / 6}
	harness.Eventually(m.t, "the member serves", func() error {
		if m.Ended() {
			m.t.Fatalf("the member ended at its start: %v\n%s", m.Wait(), m.Tail())
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

// kill ends the process abruptly, like a power failure.
func (m *member) kill() { m.end(syscall.SIGKILL) }

// end sends a signal and returns how the process ended.
func (m *member) end(sig syscall.Signal) error {
	m.t.Helper()
	if err := m.Signal(sig); err != nil {
		m.t.Fatal(err)
	}
	return m.wait()
}

// wait returns how the process ended.
func (m *member) wait() error {
	m.t.Helper()
	select {
	case <-m.Done():
		return m.Wait()
	case <-time.After(patience):
		m.t.Fatalf("the member does not end\n%s", m.Tail())
		return nil
	}
}

func (m *member) cleanup() {
	if m.Process == nil {
		return
	}
	m.kill()
	if m.t.Failed() {
		m.t.Logf("the end of what the member wrote:\n%s", m.Tail())
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
	m.t.Cleanup(func() { _ = c.Close() }) // the test may have closed it already
	return c
}

// receive receives a value from a channel, with a timeout.
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
