package cli

import (
	"context"
	"net"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"

	"leasehold.dev/client"
	"leasehold.dev/client/lock"
	"leasehold.dev/internal/cli/app"
	"leasehold.dev/test/process"
	"leasehold.dev/test/tier"
)

// topServer is a member that can be stopped and restarted.
type topServer struct {
	t          *testing.T
	binary     []string
	addr, peer string
	dir        string
	running    *exec.Cmd
}

func newTopServer(t *testing.T) *topServer {
	t.Helper()
	tier.Campaign(t)
	binary := serverBinary(t)
	if *serverFlag != "" {
		t.Skip("the server is another one")
	}
	s := &topServer{
		t: t, binary: binary, addr: process.MustFreeAddr(), peer: process.MustFreeAddr(),
		dir: filepath.Join(t.TempDir(), "m1"),
	}
	s.start()
	return s
}

func (s *topServer) start() {
	s.t.Helper()
	cmd := exec.Command(s.binary[0], append(s.binary[1:len(s.binary):len(s.binary)],
		"--name=m1", "--data-dir="+s.dir, "--listen-client-urls=http://"+s.addr,
		"--advertise-client-urls=http://"+s.addr, "--listen-peer-urls=http://"+s.peer,
		"--initial-advertise-peer-urls=http://"+s.peer, "--initial-cluster=m1=http://"+s.peer)...)
	log, err := cmd.StderrPipe()
	if err != nil {
		s.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.running = cmd
	s.t.Cleanup(s.stop)
	if err := untilReady(cmd, log); err != nil {
		s.t.Fatal(err)
	}
}

func (s *topServer) stop() {
	_ = s.running.Process.Kill()
	_ = s.running.Wait()
}

// TestTopOnTerminal checks that top shows a member's leases on a terminal, responds to keys,
// reports when the member goes down and comes back, and always restores the terminal.
func TestTopOnTerminal(t *testing.T) {
	t.Parallel()
	s := newTopServer(t)
	c, err := client.New(client.Config{Endpoints: []string{"http://" + s.addr}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, name := range []string{"jobs/one", "jobs/tw\x1bo"} {
		if _, err := c.GrantOnly(t.Context(), client.Grant{
			TTL: 100 * time.Hour, Name: name, Owner: "host-a",
		}); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{s.binary[0], "top", "--endpoints", s.addr, "--interval=100ms"}

	t.Run("keys", func(t *testing.T) {
		d := newDisplay(t)
		cmd := d.start(nil, args...)
		text := d.await(enterScreen, "healthy", "jobs/one", `"jobs/tw\x1b`, " 4d0")
		if strings.Contains(text, "tw\x1bo") {
			t.Errorf("the terminal got a name as it is: %q", text)
		}
		d.press("3")
		d.await("MEMBERS", "leader")
		d.press("1")
		d.await("LEASES", "alive")
		s.stop()
		d.await("no response for ", "was ")
		s.start()
		d.await("healthy")
		d.press("q")
		d.await(leaveScreen)
		d.ended(cmd, 0)
	})
	t.Run("interrupt", func(t *testing.T) {
		d := newDisplay(t)
		cmd := d.start([]string{"NO_COLOR=1"}, args...)
		text := d.await(enterScreen, "jobs/one")
		if colour.MatchString(text) {
			t.Errorf("there are colours: %q", text)
		}
		d.press("\x03")
		d.await(leaveScreen)
		d.ended(cmd, 0)
	})
	t.Run("signal", func(t *testing.T) {
		d := newDisplay(t)
		cmd := d.start(nil, args...)
		d.await(enterScreen, "jobs/one")
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		d.await(leaveScreen)
		d.ended(cmd, 0)
	})
	t.Run("error", func(t *testing.T) {
		d := newDisplay(t)
		cmd := d.start(nil, s.binary[0], "top", "--endpoints", stranger(t))
		d.await(enterScreen, leaveScreen, "Error: ")
		d.ended(cmd, app.ExitConnection)
	})
}

// These are the sequences that top sends before the first frame and after the last one. The first
// switches to the alternate screen, and the second switches back.
const (
	enterScreen = "\x1b[?1049h"
	leaveScreen = "\x1b[?1049l"
)

// colour matches an escape sequence that sets a text color.
var colour = regexp.MustCompile(`\x1b\[[0-9;]*(3[0-7]|38|9[0-7])[0-9;]*m`)

// stranger runs a gRPC server without any Leasehold services.
func stranger(t *testing.T) string {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	t.Cleanup(s.Stop)
	go s.Serve(l)
	return l.Addr().String()
}

// TestWaitingOnTerminal checks that a command waiting on a terminal shows whom it is waiting for,
// and erases that message when its turn comes.
func TestWaitingOnTerminal(t *testing.T) {
	t.Parallel()
	s := newTopServer(t)
	c, err := client.New(client.Config{Endpoints: []string{"http://" + s.addr}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	l, err := c.Grant(t.Context(), client.Grant{TTL: time.Minute, Owner: "host-a"})
	if err != nil {
		t.Fatal(err)
	}
	session := l.Session()
	for name, command := range map[string]string{
		"l1": "run --lock l1 -- true", "l2": "lock l2 true", "l3": "run --elect l3 -- true",
		"l4": "elect l4 value",
	} {
		m, err := lock.NewMutex(session, name).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		d := newDisplay(t)
		cmd := d.start(nil, append([]string{s.binary[0], "--endpoints", s.addr},
			strings.Fields(command)...)...)
		d.await("Waiting for \"" + name + "\", held by host-a")
		if err := m.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if name != "l4" {
			d.await(app.ClearLine)
		} else {
			d.await(app.ClearLine, "value")
			d.press("\x03")
		}
		d.ended(cmd, 0)
	}
}
