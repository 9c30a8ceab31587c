package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// A member is one process of a Server. Its methods are for one goroutine.
type member struct {
	target   string // for messages
	path     string
	args     []string
	log      string // the file that it writes to
	endpoint string // host:port of the API

	// control is a connection for asking how the member is, so that no load
	// stands before the question.
	control *Client

	cmd  *exec.Cmd
	done chan struct{} // closed when cmd has ended
}

// start runs the process, on whatever data it left.
func (m *member) start() error {
	log, err := os.OpenFile(m.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(m.path, m.args...)
	cmd.Stdout, cmd.Stderr = log, log
	// The server must not outlive an interrupted comparison.
	cmd.SysProcAttr = endWithUs()
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan struct{})
	m.cmd, m.done = cmd, done
	go func() {
		_ = cmd.Wait() // how it ended is told by who waits for done
		close(done)
	}()
	return nil
}

// waitReady polls with the quickest thing that can fail: a connection, then a
// linearizable read.
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
		case <-m.done:
			why = "the server ended before it served"
		case <-ctx.Done():
			why = "the server does not come up"
		case <-tick.C:
			continue
		}
		return fmt.Errorf("%s: bench: %s\n%s", m.target, why, m.logTail())
	}
}

// answers makes a connection of its own each time, since one that failed once
// would wait before it tries again.
func (m *member) answers(ctx context.Context) error {
	conn, err := net.DialTimeout("tcp", m.endpoint, time.Second)
	if err != nil {
		return err
	}
	if err := conn.Close(); err != nil {
		return err
	}
	c, err := Dial([]string{m.endpoint}, 1)
	if err != nil {
		return err
	}
	defer c.Close()
	return readThrough(ctx, c)
}

// readThrough makes one linearizable read.
func readThrough(ctx context.Context, c *Client) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_, err := c.KV(0).Range(ctx, rangeRequest([]byte("ready"), false))
	return err
}

// status asks the member how it is.
func (m *member) status(ctx context.Context) (*pb.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return m.control.Maintenance(0).Status(ctx, &pb.StatusRequest{}, waitForReady)
}

// kill sends SIGKILL and does not wait: what a failover takes counts from
// here.
func (m *member) kill() error {
	if m.cmd == nil {
		return nil
	}
	if err := m.cmd.Process.Kill(); !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// wait returns when the process has ended.
func (m *member) wait() {
	if m.done != nil {
		<-m.done
	}
}

// logTail is the end of what the member wrote.
func (m *member) logTail() []byte {
	text, err := os.ReadFile(m.log)
	if err != nil {
		return []byte(err.Error())
	}
	return text[max(0, len(text)-2000):]
}
