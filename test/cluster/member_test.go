package cluster

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"leasehold.dev/test/harness"
	"leasehold.dev/test/process"
)

// A member is a server process together with its files.
type member struct {
	t         *testing.T
	name      string
	data      string // data directory
	log       string // file with its output
	url, peer string // of the client port and of the peer port
	ns        string // network namespace, or "" on loopback
	dial      dialer // how clients reach it; nil on loopback
	args      []string
	extra     []string         // in addition to the common arguments
	binary    string           // a binary of another release, or "" for the one under test
	admin     *clientv3.Client // the test's own client

	*process.Process // the last launched process, or nil
}

// A dialer connects to an address, for grpc.WithContextDialer.
type dialer func(ctx context.Context, addr string) (net.Conn, error)

// newMember returns a member with free loopback ports and an empty directory. The caller must
// configure it.
func newMember(t *testing.T, name string) *member {
	t.Helper()
	return &member{
		t: t, name: name,
		data: filepath.Join(t.TempDir(), "data"),
		log:  filepath.Join(t.TempDir(), name+".log"),
		url:  "http://" + process.MustFreeAddr(), peer: "http://" + process.MustFreeAddr(),
	}
}

// configure sets the member's command line.
func (m *member) configure(cluster, state, token string) {
	m.args = []string{
		"serve", "--name", m.name, "--data-dir", m.data,
		"--listen-client-urls", m.url, "--advertise-client-urls", m.url,
		"--listen-peer-urls", m.peer, "--initial-advertise-peer-urls", m.peer,
		"--initial-cluster", cluster, "--initial-cluster-state", state,
		"--initial-cluster-token", token,
	}
	m.args = append(m.args, m.extra...)
}

// launch starts the process without waiting for it to serve.
func (m *member) launch() {
	m.t.Helper()
	binary := m.binary
	if binary == "" {
		binary = server.Path(m.t)
	}
	cmd := exec.Command(binary, m.args...)
	if m.ns != "" {
		// ip replaces itself with the program, so its process ID becomes the member's.
		cmd = exec.Command("ip", append([]string{"netns", "exec", m.ns, binary}, m.args...)...)
	}
	p, err := process.Start(cmd, m.log, fmt.Sprintf("--- launched at %v", now()))
	if err != nil {
		m.t.Fatal(err)
	}
	m.Process = p
}

// serves waits until a linearizable read through the member succeeds.
func (m *member) serves() {
	m.t.Helper()
	harness.Eventually(m.t, m.name+" serves", func() error {
		if m.Ended() {
			m.t.Fatalf("%s ended at startup: %v\n%s", m.name, m.Wait(), m.Tail())
		}
		ctx, cancel := context.WithTimeout(m.t.Context(), time.Second)
		defer cancel()
		_, err := m.admin.Get(ctx, "ready")
		return err
	})
}

// kill ends the process abruptly, like a power failure.
func (m *member) kill() { _ = m.end(syscall.SIGKILL) } // the error always reports the signal

// end sends a signal and returns how the process ended.
func (m *member) end(sig syscall.Signal) error {
	m.t.Helper()
	m.signal(sig)
	return m.wait()
}

// wait returns how the process ended.
func (m *member) wait() error {
	m.t.Helper()
	select {
	case <-m.Done():
		return m.Wait()
	case <-time.After(patience):
		m.t.Fatalf("%s does not end\n%s", m.name, m.Tail())
		return nil
	}
}

// pause stops the process until resume is called, as if the machine were suspended.
func (m *member) pause()  { m.signal(syscall.SIGSTOP) }
func (m *member) resume() { m.signal(syscall.SIGCONT) }

func (m *member) signal(sig syscall.Signal) {
	m.t.Helper()
	if err := m.Signal(sig); err != nil {
		m.t.Fatal(err)
	}
}

// wipe deletes the data, as if the disk were lost.
func (m *member) wipe() {
	m.t.Helper()
	if err := os.RemoveAll(m.data); err != nil {
		m.t.Fatal(err)
	}
}

func (m *member) cleanup() {
	if !m.Ended() {
		m.kill()
	}
	if m.t.Failed() {
		m.t.Logf("the end of what %s wrote (%s):\n%s", m.name, m.keepLog(), process.Tail(m.log))
	}
}

// keepLog copies the log to a file that outlives the test, and returns its path.
func (m *member) keepLog() string {
	text, err := os.ReadFile(m.log)
	if err != nil {
		return err.Error()
	}
	name := strings.ReplaceAll(m.t.Name(), "/", "-")
	f, err := os.CreateTemp("", "leasehold-"+name+"-"+m.name+"-*.log")
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	if _, err := f.Write(text); err != nil {
		return err.Error()
	}
	return f.Name()
}

// client returns a new client configured with the given members, in order.
func client(t *testing.T, members ...*member) *clientv3.Client {
	t.Helper()
	config := clientv3.Config{
		DialTimeout: time.Second, DialKeepAliveTime: 10 * time.Second,
		DialKeepAliveTimeout: time.Second, Logger: zap.NewNop(),
	}
	for _, m := range members {
		config.Endpoints = append(config.Endpoints, m.url)
		if m.dial != nil {
			config.DialOptions = []grpc.DialOption{grpc.WithContextDialer(m.dial)}
		}
	}
	c, err := clientv3.New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // the test may have closed it already
	return c
}
