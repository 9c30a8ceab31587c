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

// runIdleRelays measures what a member spends on sessions that are connected to relays.
func runIdleRelays(ctx context.Context, e *Env) (_ Result, err error) {
	var addrs []string
	for i := range idleRelays {
		addr, end, startErr := e.Server.startRelay(fmt.Sprintf("relay%d", i+1))
		if startErr != nil {
			return Result{}, startErr
		}
		defer func() { err = errors.Join(err, end()) }()
		addrs = append(addrs, addr)
	}
	var turn atomic.Int64
	spread := func(ctx context.Context, _ string, _ *tls.Config) (idleConn, error) {
		return dialOwnIdle(ctx, addrs[int(turn.Add(1))%len(addrs)], nil)
	}
	return e.measureIdle(ctx, newIdleCrowd(e, spread))
}

// startRelay starts a relay in front of the members, and returns its address, and what ends it.
func (s *Server) startRelay(name string) (addr string, end func() error, err error) {
	addr = process.MustFreeAddr()
	var members []string
	for _, m := range s.members {
		members = append(members, m.endpoint)
	}
	cmd := exec.Command(s.Target.Path, "relay", "--endpoints", strings.Join(members, ","),
		"--listen-client-urls", "http://"+addr, "--log-level", "error")
	p, err := process.Start(cmd, filepath.Join(s.dir, name+".log"), "")
	if err != nil {
		return "", nil, err
	}
	end = func() error {
		err := p.Signal(syscall.SIGKILL)
		<-p.Done()
		return err
	}
	return addr, end, nil
}
