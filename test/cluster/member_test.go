package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
)

// A member is a server process and what it keeps.
type member struct {
	t         *testing.T
	name      string
	data      string // data directory
	log       string // file with all that it wrote
	url, peer string // of the clients' port, of the members' port
	ns        string // network namespace, or "" on loopback
	dial      dialer // how clients reach it; nil on loopback
	args      []string
	admin     *clientv3.Client // of the tests themselves

	cmd  *exec.Cmd
	done chan struct{} // closed when cmd has ended
	exit error         // set before done is closed
}

// A dialer connects to an address, as grpc.WithContextDialer wants it.
type dialer func(ctx context.Context, addr string) (net.Conn, error)

// newMember makes a member on free ports of loopback and a new directory, not
// yet started and not yet told of its cluster.
func newMember(t *testing.T, name string) *member {
	t.Helper()
	return &member{
		t: t, name: name,
		data: filepath.Join(t.TempDir(), "data"),
		log:  filepath.Join(t.TempDir(), name+".log"),
		url:  "http://" + freeAddr(t), peer: "http://" + freeAddr(t),
	}
}

// given are the ports that this process has handed out.
var given sync.Map

// freeAddr returns an address on loopback that nobody listens on, and that was
// not returned before. Its port is below those that the kernel gives to outgoing
// connections, so that none takes it before its member starts.
func freeAddr(t *testing.T) string {
	t.Helper()
	for range 1000 {
		addr := fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(20_000))
		if _, taken := given.LoadOrStore(addr, true); taken {
			continue
		}
		if l, err := net.Listen("tcp", addr); err == nil {
			l.Close()
			return addr
		}
	}
	t.Fatal("no port is free")
	return ""
}

// configure sets what the member is started with.
func (m *member) configure(cluster, state, token string) {
	m.args = append(strings.Fields(*serveFlag),
		"--name", m.name, "--data-dir", m.data,
		"--listen-client-urls", m.url, "--advertise-client-urls", m.url,
		"--listen-peer-urls", m.peer, "--initial-advertise-peer-urls", m.peer,
		"--initial-cluster", cluster, "--initial-cluster-state", state,
		"--initial-cluster-token", token)
}

// launch starts the process and does not wait for anything.
func (m *member) launch() {
	m.t.Helper()
	out, err := os.OpenFile(m.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		m.t.Fatal(err)
	}
	defer out.Close()
	fmt.Fprintf(out, "--- launched at %v\n", now())
	cmd := exec.Command(binary(m.t), m.args...)
	if m.ns != "" {
		// ip replaces itself by the program, so the process id is the member's.
		cmd = exec.Command("ip", append([]string{"netns", "exec", m.ns, binary(m.t)}, m.args...)...)
	}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = endWithUs()
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

// ended reports whether the process has ended, or was never started.
func (m *member) ended() bool {
	if m.cmd == nil {
		return true
	}
	select {
	case <-m.done:
		return true
	default:
		return false
	}
}

// serves waits until a linearizable read through the member succeeds.
func (m *member) serves() {
	m.t.Helper()
	eventually(m.t, m.name+" serves", func() error {
		if m.ended() {
			m.t.Fatalf("%s ended at its start: %v\n%s", m.name, m.exit, m.output())
		}
		ctx, cancel := context.WithTimeout(m.t.Context(), time.Second)
		defer cancel()
		_, err := m.admin.Get(ctx, "ready")
		return err
	})
}

// kill ends the process as a power cut would.
func (m *member) kill() { _ = m.end(syscall.SIGKILL) } // killed is the only outcome

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
	case <-m.done:
		return m.exit
	case <-time.After(patience):
		m.t.Fatalf("%s does not end\n%s", m.name, m.output())
		return nil
	}
}

// pause stops the process until resume, as a machine that is suspended or much
// too busy.
func (m *member) pause()  { m.signal(syscall.SIGSTOP) }
func (m *member) resume() { m.signal(syscall.SIGCONT) }

func (m *member) signal(sig syscall.Signal) {
	m.t.Helper()
	if err := m.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		m.t.Fatal(err)
	}
}

// wipe takes the data away, as a lost disk does.
func (m *member) wipe() {
	m.t.Helper()
	if err := os.RemoveAll(m.data); err != nil {
		m.t.Fatal(err)
	}
}

// output returns the end of what the member wrote.
func (m *member) output() string {
	text, err := os.ReadFile(m.log)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-4000):])
}

func (m *member) cleanup() {
	if !m.ended() {
		m.kill()
	}
	if m.t.Failed() {
		m.t.Logf("the end of what %s wrote (%s):\n%s", m.name, m.keepLog(), m.output())
	}
}

// keepLog copies the whole log to where it outlives the test, and returns the
// place.
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

// client returns a new client of these members, tried in this order.
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
	t.Cleanup(func() { _ = c.Close() }) // a test may have closed it
	return c
}
