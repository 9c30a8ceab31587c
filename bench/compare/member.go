package compare

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"syscall"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"leasehold.dev/internal/load"
	"leasehold.dev/test/process"
)

// A member is one process of a Server. Its methods may be called by one goroutine only.
type member struct {
	target   string // for messages
	path     string
	args     []string
	log      string // the file that it writes to
	endpoint string // host:port of the API
	secure   string // the same with TLS, if it has that
	foreign  *Foreign

	// control is a connection for status requests, so that these do not wait behind the load.
	control *load.Client

	*process.Process // of the last start; nil before
}

// start runs the process, with any data that it has left.
func (m *member) start() error {
	p, err := process.Start(exec.Command(m.path, m.args...), m.log, "")
	if err != nil {
		return err
	}
	m.Process = p
	return nil
}

// waitReady polls, first with a connection, which fails fastest, then with a linearizable read.
func (m *member) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		if m.answers(ctx) == nil {
			return nil
		}
		why := ""
		select {
		case <-m.Done():
			why = "the server ended before it served"
		case <-ctx.Done():
			why = "the server does not come up"
		case <-tick.C:
			continue
		}
		return fmt.Errorf("%s: bench: %s\n%s", m.target, why, m.Tail())
	}
}

// answers creates a new connection each time, since one that has failed would wait before it tries
// again.
func (m *member) answers(ctx context.Context) error {
	if m.foreign != nil {
		return m.foreign.Answers(ctx, m.endpoint)
	}
	conn, err := net.DialTimeout("tcp", m.endpoint, time.Second)
	if err != nil {
		return err
	}
	if err := conn.Close(); err != nil {
		return err
	}
	c, err := dial([]string{m.endpoint}, 1)
	if err != nil {
		return err
	}
	defer c.Close()
	return readThrough(ctx, c)
}

// readThrough makes one linearizable read.
func readThrough(ctx context.Context, c *load.Client) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_, err := c.KV(0).Range(ctx, rangeRequest([]byte("ready"), false))
	return err
}

// maintenance returns the client of the member's Maintenance service.
func (m *member) maintenance() pb.MaintenanceClient {
	return pb.NewMaintenanceClient(m.control.Conn(0))
}

// status queries the member's status.
func (m *member) status(ctx context.Context) (*pb.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return m.maintenance().Status(ctx, &pb.StatusRequest{}, waitForReady)
}

// kill sends SIGKILL and does not wait: the duration of a failover counts from here.
func (m *member) kill() error {
	if m.Process == nil {
		return nil
	}
	return m.Signal(syscall.SIGKILL)
}

// hang sends SIGSTOP: the process is paused, and its connections stay open.
func (m *member) hang() error {
	if m.Process == nil {
		return nil
	}
	return m.Signal(syscall.SIGSTOP)
}

// resume sends SIGCONT.
func (m *member) resume() error { return m.Signal(syscall.SIGCONT) }

// wait returns when the process has ended.
func (m *member) wait() {
	if m.Process != nil {
		<-m.Done()
	}
}
