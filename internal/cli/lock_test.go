//go:build linux

package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"leasehold.dev/client"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/store"
	"leasehold.dev/internal/cli/app"
	"leasehold.dev/test/inprocess"
	"leasehold.dev/test/tier"
)

// said is the output of a command so far.
type said struct {
	mu   sync.Mutex
	text strings.Builder
}

func (h *said) Write(b []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.Write(b)
}

func (h *said) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.text.String()
}

// running is a client command in a separate process that has already printed its first line.
type running struct {
	*exec.Cmd
	errs  said
	ended chan struct{}
}

// start runs a client command.
func start(t *testing.T, args ...string) *running {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r := &running{Cmd: &exec.Cmd{Path: self, Args: append([]string{"leasehold"}, args...)}}
	r.Env, r.Stderr, r.ended = os.Environ(), &r.errs, make(chan struct{})
	out, err := r.StdoutPipe()
	if err == nil {
		err = r.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = r.Process.Kill()
		<-r.ended
	})
	lines := bufio.NewReader(out)
	_, lineErr := lines.ReadString('\n')
	go func() {
		_, _ = lines.WriteTo(&said{})
		_ = r.Wait()
		close(r.ended)
	}()
	if lineErr != nil {
		<-r.ended
		t.Fatalf("%q: %s", args, r.errs.String())
	}
	return r
}

// end waits for the command to exit, and calls the function meanwhile every 100 ms until then.
func (r *running) end(t *testing.T, meanwhile func()) {
	t.Helper()
	late := time.After(45 * time.Second)
	for {
		select {
		case <-r.ended:
			return
		case <-time.After(100 * time.Millisecond):
			meanwhile()
		case <-late:
			t.Fatalf("%q goes on; it says %s", r.Args, r.errs.String())
		}
	}
}

// holders contains the commands that hold a key named a/ with a lease.
var holders = map[string][]string{
	"lock": {"lock", "a", "--ttl", "2"},
	"lock and command": {
		"lock", "a", "--ttl", "2", "--", "sh", "-c",
		"trap '' INT TERM; echo; while :; do sleep 0.1; done",
	},
	"elect": {"elect", "a", "me"},
}

// unhurried returns a holder's arguments with a TTL that is long enough for a slow machine.
func unhurried(args []string) []string {
	out := slices.Clone(args)
	if i := slices.Index(out, "2"); i >= 0 {
		out[i] = "600"
	}
	return out
}

// TestHolderLoses checks a command that loses its lock because the key is deleted or the lease is
// revoked. The command immediately stops its child, reports the loss, and exits with a specific
// code. After a revocation, it may detect the loss of the key or the loss of the lease first.
func TestHolderLoses(t *testing.T) {
	tier.RealTime(t)
	t.Parallel()
	m := inprocess.Run(t, 1)[0]
	c := inprocess.Connect(t, client.Config{}, m.Endpoint())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for name, args := range holders {
		for what, take := range map[string]func(*store.KV) error{
			"key": func(kv *store.KV) error {
				_, err := c.Delete(ctx, store.Delete{Key: kv.Key})
				return err
			},
			"lease": func(kv *store.KV) error { return c.Revoke(ctx, leases.Ref{ID: kv.Lease}) },
		} {
			r := start(t, append([]string{"--endpoints", m.Endpoint()}, unhurried(args)...)...)
			all, err := c.Range(ctx, store.Range{Key: "a/", End: "a0"})
			if err != nil || len(all.KVs) != 1 {
				t.Fatalf("%s: %+v, %v", name, all, err)
			}
			if err := take(&all.KVs[0]); err != nil {
				t.Fatal(err)
			}
			r.end(t, func() {})
			reported := strings.Contains(r.errs.String(), "lost: its "+what+" was ") ||
				what == "lease" && strings.Contains(r.errs.String(), "the lease is gone: revoked by ")
			if code := r.ProcessState.ExitCode(); code != app.ExitLost || !reported {
				t.Errorf("%s, %s: exit code %d, it says %s", name, what, code, r.errs.String())
			}
		}
	}
}

// TestKeepAlivePrintsCause checks that keep-alive prints how the lease ended. If the lease changes
// hands, keep-alive continues, both by ID and by name.
func TestKeepAlivePrintsCause(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	m := inprocess.Run(t, 1)[0]
	c := inprocess.Connect(t, client.Config{}, m.Endpoint())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, handedOver := range []bool{false, true} {
		l, err := c.Grant(ctx, client.Grant{Name: "n", TTL: 10 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		id := fmt.Sprintf("%016x", int64(l.ID()))
		r := start(t, "--endpoints", m.Endpoint(), "lease", "keep-alive", "n")
		if handedOver {
			_, err = l.HandOver(ctx, "next")
		}
		if err == nil {
			err = c.Revoke(ctx, leases.Ref{ID: l.ID()})
		}
		want := "lease " + id + ` has ended: revoked by "`
		if errors.Is(err, client.ErrLeaseNotFound) { // possible on a slow machine
			want = "lease " + id + " has ended: expired"
		} else if err != nil {
			t.Fatal(err)
		}
		r.end(t, func() {})
		if got := r.errs.String(); !strings.Contains(got, want) {
			t.Errorf("it says %s, want %s", got, want)
		}
	}
}

// TestHolderCutOff checks that a command that cannot reach any member reports the loss of its lock
// with the same exit code.
func TestHolderCutOff(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	m := inprocess.Run(t, 1)[0]
	for name, args := range holders {
		if name == "elect" {
			continue // its TTL is a minute
		}
		line := m.Line()
		r := start(t, append([]string{"--endpoints", line.Endpoint()}, args...)...)
		line.SetCut(true)
		r.end(t, func() {})
		if code := r.ProcessState.ExitCode(); code != app.ExitLost ||
			!strings.Contains(r.errs.String(), "renewed in time") {
			t.Errorf("%s: exit code %d, it says %s", name, code, r.errs.String())
		}
	}
}

// TestHolderOfHangingMember checks that a command keeps its lock when its member hangs for longer
// than the TTL.
func TestHolderOfHangingMember(t *testing.T) {
	tier.RealTime(t)
	t.Parallel()
	all := inprocess.Run(t, 3)
	lines := []*inprocess.Line{all[0].Line(), all[1].Line()}
	const ttl = 3 * time.Second
	r := start(t, "--endpoints", strings.Join(inprocess.Endpoints(lines), ","), "lock", "a", "--ttl", "3")
	i := slices.IndexFunc(lines, (*inprocess.Line).Busy)
	lines[i].SetFrozen(true)
	select {
	case <-r.ended:
		t.Errorf("it ended with %v: %s", r.ProcessState, r.errs.String())
	case <-time.After(2 * ttl):
	}
	_ = r.Process.Signal(syscall.SIGINT)
	r.end(t, func() {})
	if !r.ProcessState.Success() {
		t.Errorf("interrupted, it ends with %v: %s", r.ProcessState, r.errs.String())
	}
}

// TestInterruptedTwice checks that a second interrupt ends a command even if no member is reachable
// and the child ignores the first interrupt.
func TestInterruptedTwice(t *testing.T) {
	tier.Campaign(t)
	t.Parallel()
	for name, args := range holders {
		// a new cluster, because each command leaves a long-lived lease behind
		line := inprocess.Run(t, 1)[0].Line()
		r := start(t, append([]string{
			"--endpoints", line.Endpoint(), "--command-timeout", "1h",
		}, unhurried(args)...)...)
		line.SetCut(true)
		r.end(t, func() { _ = r.Process.Signal(syscall.SIGINT) })
		if r.ProcessState.Success() {
			t.Errorf("%s: it says nothing of what it has left", name)
		}
	}
}
