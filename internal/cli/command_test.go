package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/rogpeppe/go-internal/testscript"
	"leasehold.dev/internal/cli/app"
)

// invocation is one run of a client command.
type invocation struct {
	args, env      []string
	stdin          *os.File
	stdout, stderr *capture
}

// apart runs the command in a separate process and returns the reason if it fails.
func (c *invocation) apart(ctx context.Context, ts *testscript.TestScript) (string, error) {
	path := ts.Getenv("CTL")
	if !strings.Contains(path, "/") {
		var err error
		if path, err = lookPath(ts.Getenv("PATH"), path); err != nil {
			return "", err
		}
	}
	cmd := exec.CommandContext(ctx, path, c.args...)
	cmd.Dir, cmd.Env = ts.Getenv("WORK"), c.env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.stdin, c.stdout, c.stderr
	c.stdout.do = func() bool { _ = cmd.Process.Signal(os.Interrupt); return false }
	err := cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exit.String(), nil
	}
	return "", err
}

// here runs the command in the test process. If the command fails, here returns what apart would
// have returned.
func (c *invocation) here(ctx context.Context) string {
	ctx, kill := context.WithCancel(ctx)
	defer kill()
	var s listeners
	var killed atomic.Bool
	c.stdout.do = func() bool {
		if s.interrupt() {
			return false
		}
		killed.Store(true)
		c.stderr.close()
		kill()
		return true
	}
	code := Main(app.Process{
		Args: c.args, Env: c.env, Stdin: c.stdin, Stdout: c.stdout, Stderr: c.stderr,
		Context: ctx, Notify: s.notify, Shared: true,
	})
	c.stdout.close()
	c.stderr.close()
	switch {
	case killed.Load():
		return "signal: interrupt"
	case code != 0:
		return fmt.Sprintf("exit status %d", code)
	}
	return ""
}

// listeners contains the channels through which commands in the test process receive signals.
type listeners struct {
	mu  sync.Mutex
	all []chan<- os.Signal
}

func (l *listeners) notify(to chan<- os.Signal, _ ...os.Signal) (stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, to)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all = slices.DeleteFunc(l.all, func(c chan<- os.Signal) bool { return c == to })
	}
}

// interrupt sends SIGINT to the listeners, and reports whether there are any.
func (l *listeners) interrupt() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, to := range l.all {
		select {
		case to <- os.Interrupt:
		default:
		}
	}
	return len(l.all) > 0
}

// capture stores a command's output until the command ends. It calls the function do when the
// output first matches the pattern on.
type capture struct {
	on *regexp.Regexp // nil if do is never called
	do func() (over bool)

	mu   sync.Mutex // guards the following fields
	text bytes.Buffer
	done bool // do has been called
	over bool
}

func (o *capture) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.over {
		return 0, io.ErrClosedPipe
	}
	n, err := o.text.Write(p)
	if o.on != nil && !o.done && o.on.Match(o.text.Bytes()) {
		o.done = true
		o.over = o.do()
	}
	return n, err
}

// close discards all further output.
func (o *capture) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.over = true
}

func (o *capture) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
