package cli

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// display is a pseudo-terminal that records the output of a program.
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

// await waits until all of the given texts have been written since its last call.
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

// start runs a command on its own terminal.
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

// ended checks that the command exits with the given code and restores the terminal.
func (d *display) ended(cmd *exec.Cmd, code int) {
	d.t.Helper()
	_ = cmd.Wait() // the exit code is checked below
	if got := cmd.ProcessState.ExitCode(); got != code {
		d.t.Errorf("ended with %d, want %d", got, code)
	}
	if now := d.settings(); now != d.before {
		d.t.Errorf("left the terminal as %+v, want %+v", now, d.before)
	}
}
