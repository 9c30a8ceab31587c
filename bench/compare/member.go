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

// A member is one process of a Server. Only one goroutine may call its methods.
type member struct {
	target   string // name used in messages
	path     string
	args     []string
	log      string // file with the process's output
	endpoint string // host:port of the API
	secure   string // TLS endpoint of the API, if any
	foreign  *Foreign

	// control is a separate connection for status requests, so that they do not queue behind the
	// load.
	control *load.Client

	*process.Process // the most recently started process, or nil
}

// start runs the process with the data left by the previous one, if any.
func (m *member) start() error {
	p, err := process.Start(exec.Command(m.path, m.args...), m.log, "")
	if err != nil {
		return err
	}
	m.Process = p
	return nil
}

// waitReady polls until the member is ready. It first tries to connect, because that fails fastest,
// and then to perform a linearizable read.
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

// answers creates a new connection for each attempt, because a failed connection would back off
// before it retries.
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

// kill sends SIGKILL without waiting, because the duration of a failover is measured from here.
func (m *member) kill() error {
	if m.Process == nil {
		return nil
	}
	return m.Signal(syscall.SIGKILL)
}

// hang sends SIGSTOP, which pauses the process and leaves its connections open.
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
