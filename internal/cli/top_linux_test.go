package cli

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"leasehold.dev/client"
	"leasehold.dev/test/process"
)

// display is a pseudo-terminal, and what a program has written to it.
type display struct {
	t             *testing.T
	keyboard, tty *os.File
	before        unix.Termios

	mu   sync.Mutex
	text bytes.Buffer
	news chan struct{}
}

func newDisplay(t *testing.T) *display {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { keyboard.Close() })
	fd := int(keyboard.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tty.Close() })
	d := &display{t: t, keyboard: keyboard, tty: tty, news: make(chan struct{}, 1)}
	d.before = d.settings()
	d.resize(80, 24)
	go d.read()
	return d
}

func (d *display) settings() unix.Termios {
	d.t.Helper()
	s, err := unix.IoctlGetTermios(int(d.tty.Fd()), unix.TCGETS)
	if err != nil {
		d.t.Fatal(err)
	}
	return *s
}

func (d *display) resize(width, height uint16) {
	d.t.Helper()
	size := &unix.Winsize{Col: width, Row: height}
	if err := unix.IoctlSetWinsize(int(d.keyboard.Fd()), unix.TIOCSWINSZ, size); err != nil {
		d.t.Fatal(err)
	}
}

func (d *display) read() {
	for {
		b := make([]byte, 4096)
		n, err := d.keyboard.Read(b)
		if err != nil {
			return
		}
		d.mu.Lock()
		d.text.Write(b[:n])
		d.mu.Unlock()
		select {
		case d.news <- struct{}{}:
		default:
		}
	}
}

func (d *display) press(keys string) {
	d.t.Helper()
	if _, err := d.keyboard.WriteString(keys); err != nil {
		d.t.Fatal(err)
	}
}

// await waits until all of some texts were written since the last call.
func (d *display) await(texts ...string) string {
	d.t.Helper()
	late := time.After(patience)
	for {
		d.mu.Lock()
		text := d.text.String()
		missing := false
		for _, want := range texts {
			missing = missing || !strings.Contains(text, want)
		}
		if !missing {
			d.text.Reset()
		}
		d.mu.Unlock()
		if !missing {
			return text
		}
		select {
		case <-d.news:
		case <-late:
			d.t.Fatalf("the terminal never got all of %q, only %q", texts, text)
		}
	}
}

// start runs a command that has the terminal for its own.
func (d *display) start(env []string, command ...string) *exec.Cmd {
	d.t.Helper()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = d.tty, d.tty, d.tty
	cmd.Env = append(os.Environ(), append([]string{"TERM=xterm", "NO_COLOR="}, env...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// ended checks that the command ends with a code, and that the terminal is as it was.
func (d *display) ended(cmd *exec.Cmd, code int) {
	d.t.Helper()
	_ = cmd.Wait() // its code says how
	if got := cmd.ProcessState.ExitCode(); got != code {
		d.t.Errorf("ended with %d, want %d", got, code)
	}
	if now := d.settings(); now != d.before {
		d.t.Errorf("left the terminal as %+v, want %+v", now, d.before)
	}
}

// topServer starts a member that may be stopped and started again.
type topServer struct {
	t          *testing.T
	binary     []string
	addr, peer string
	dir        string
	running    *exec.Cmd
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

// Goal: top shows the leases of a member on a real terminal, does what keys say, says when the
// member is away and when it is back, and leaves the terminal as it was, whichever way it ends.
// Method: the real programs, on a pseudo-terminal.
func TestTopOnTerminal(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server")
	}
	t.Parallel()
	binary := serverBinary(t)
	if *serverFlag != "" {
		t.Skip("the server is another one")
	}
	s := &topServer{
		t: t, binary: binary, addr: process.MustFreeAddr(), peer: process.MustFreeAddr(),
		dir: filepath.Join(t.TempDir(), "m1"),
	}
	s.start()
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
	args := []string{binary[0], "top", "--endpoints", s.addr, "--interval=100ms"}

	t.Run("keys", func(t *testing.T) {
		d := newDisplay(t)
		cmd := d.start(nil, args...)
		text := d.await(enterScreen, "healthy", "jobs/one", `"jobs/tw\x1bo"`, " 4d0", "\x1b[7m")
		if strings.Contains(text, "tw\x1bo") {
			t.Errorf("the terminal got a name as it is: %q", text)
		}
		d.press("2")
		d.await("jobs/ ", "PREFIXES")
		d.press("\r")
		d.await("LEASES", "name:jobs/")
		d.press("\x1b[B\r")
		d.await("token", "Escape back")
		d.press("\x1b")
		d.await("STATE")
		d.resize(60, 10)
		d.await("\x1b[2J", "\x1b[10;1H")
		s.stop()
		d.await("No answer for ", "was 4d0")
		s.start()
		d.await("  4d0") // without "was"
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
		cmd := d.start(nil, binary[0], "top", "--endpoints", stranger(t))
		d.await(enterScreen, leaveScreen, "Error: ")
		d.ended(cmd, exitConnection)
	})
}

// colour is a sequence that changes how letters look.
var colour = regexp.MustCompile(`\x1b\[[0-9;]*m`)

// stranger serves gRPC, and nothing of ours.
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
