package compare

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"

	"leasehold.dev/test/process"
)

// idleRelays is how many relays idle sessions have between them and the member.
const idleRelays = 2

// runIdleRelays measures what a member, and the relays, spend on sessions that are connected to
// relays.
func runIdleRelays(ctx context.Context, e *Env) (_ Result, err error) {
	all := make(relays, idleRelays)
	for i := range all {
		if all[i], err = e.Server.startRelay(fmt.Sprintf("relay%d", i+1)); err != nil {
			return Result{}, err
		}
		defer func() { err = errors.Join(err, all[i].end()) }()
	}
	var turn atomic.Int64
	spread := func(ctx context.Context, _ string, _ *tls.Config) (idleConn, error) {
		return dialDirectIdle(ctx, all[int(turn.Add(1))%len(all)].addr, nil)
	}
	before, err := all.resident()
	if err != nil {
		return Result{}, err
	}
	crowd := &relayedCrowd{idlers: newIdleCrowd(e, spread), relays: all}
	r, err := e.measureIdle(ctx, idleTTL, crowd)
	r.More = append(r.More, Metric{
		"resident memory of one at its relay", (crowd.resident - before) / float64(e.IdleSessions),
		"bytes",
	})
	return r, err
}

// relayedCrowd notes what the relays hold while the sessions are there.
type relayedCrowd struct {
	idlers
	relays   relays
	resident float64 // bytes
}

func (c *relayedCrowd) check() (err error) {
	c.resident, err = c.relays.resident()
	return errors.Join(err, c.idlers.check())
}

// relays are processes.
type relays []relayProcess

type relayProcess struct {
	addr string
	pid  int
	end  func() error
}

// resident returns the memory of all, in bytes.
func (r relays) resident() (sum float64, err error) {
	for _, p := range r {
		u, err := readUsage(p.pid)
		if err != nil {
			return 0, err
		}
		sum += float64(u.RSS)
	}
	return sum, nil
}

// startRelay starts a relay in front of the members.
func (s *Server) startRelay(name string) (relayProcess, error) {
	addr := process.MustFreeAddr()
	var members []string
	for _, m := range s.members {
		members = append(members, m.endpoint)
	}
	cmd := exec.Command(s.Target.Path, "relay", "--endpoints", strings.Join(members, ","),
		"--listen-client-urls", "http://"+addr, "--log-level", "error")
	p, err := process.Start(cmd, filepath.Join(s.dir, name+".log"), "")
	if err != nil {
		return relayProcess{}, err
	}
	end := func() error {
		err := p.Signal(syscall.SIGKILL)
		<-p.Done()
		return err
	}
	return relayProcess{addr, cmd.Process.Pid, end}, nil
}
