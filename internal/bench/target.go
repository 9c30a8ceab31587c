package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// A Target is a kind of server that can be started.
type Target struct {
	// Name stands in reports: "leasehold", "etcd", "ceiling".
	Name string
	// Path is the binary, Args what stands before the flags that Start adds.
	Path string
	Args []string
	// Ceiling marks the server that stores nothing. It takes one flag, and
	// workloads that need a store leave it out.
	Ceiling bool
}

// A Server is a started target. Its methods are for one goroutine.
type Server struct {
	Target Target
	// Endpoint is the host:port of the API.
	Endpoint string

	args []string
	dir  string
	cmd  *exec.Cmd
	done chan struct{} // closed when cmd has ended
}

// Start runs the target on free loopback ports and an empty directory, and
// returns when it answers a linearizable read.
func (t Target) Start(ctx context.Context) (*Server, error) {
	dir, err := os.MkdirTemp("", "leasehold-bench-")
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(2)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s := &Server{Target: t, Endpoint: ports[0], dir: dir}
	s.args = append(append([]string{}, t.Args...), t.flags(dir, ports)...)
	if _, err := s.run(ctx); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func (t Target) flags(dir string, ports []string) []string {
	if t.Ceiling {
		return []string{"-serve-ceiling", ports[0]}
	}
	client, peer := "http://"+ports[0], "http://"+ports[1]
	return []string{
		"--name", "default",
		"--data-dir", filepath.Join(dir, "data"),
		"--listen-client-urls", client,
		"--advertise-client-urls", client,
		"--listen-peer-urls", peer,
		"--initial-advertise-peer-urls", peer,
		"--initial-cluster", "default=" + peer,
		"--quota-backend-bytes", fmt.Sprint(8 << 30),
		"--log-level", "error",
	}
}

// run starts the process and waits until it serves. It returns how long that
// took.
func (s *Server) run(ctx context.Context) (time.Duration, error) {
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	defer log.Close()
	cmd := exec.Command(s.Target.Path, s.args...)
	cmd.Stdout, cmd.Stderr = log, log
	// The server must not outlive an interrupted comparison.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	done := make(chan struct{})
	s.cmd, s.done = cmd, done
	go func() {
		_ = cmd.Wait() // how it ended is told by who waits for done
		close(done)
	}()
	if err := s.waitReady(ctx); err != nil {
		return 0, fmt.Errorf("%s: %w\n%s", s.Target.Name, err, s.logTail())
	}
	return time.Since(began), nil
}

// waitReady polls with the quickest thing that can fail: a connection, then a
// linearizable read.
func (s *Server) waitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		if s.answers(ctx) == nil {
			return nil
		}
		select {
		case <-s.done:
			return errors.New("bench: the server ended before it served")
		case <-ctx.Done():
			return errors.New("bench: the server does not come up")
		case <-tick.C:
		}
	}
}

func (s *Server) answers(ctx context.Context) error {
	conn, err := net.DialTimeout("tcp", s.Endpoint, time.Second)
	if err != nil {
		return err
	}
	if err := conn.Close(); err != nil {
		return err
	}
	c, err := Dial(s.Endpoint, 1)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_, err = c.KV(0).Range(ctx, rangeRequest([]byte("ready"), false))
	return err
}

// Restart kills the server as a power cut would, starts it again on the same
// data, and returns how long it took from the start of the process to the
// first answer of a linearizable read.
func (s *Server) Restart(ctx context.Context) (time.Duration, error) {
	if err := s.kill(); err != nil {
		return 0, err
	}
	return s.run(ctx)
}

// Usage reads what the process has used so far.
func (s *Server) Usage() (Usage, error) { return readUsage(s.cmd.Process.Pid) }

// Stop ends the process and removes its directory.
func (s *Server) Stop() error {
	return errors.Join(s.kill(), os.RemoveAll(s.dir))
}

func (s *Server) kill() error {
	if s.cmd == nil {
		return nil
	}
	err := s.cmd.Process.Kill()
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	<-s.done
	return err
}

// logTail is the end of what the server wrote.
func (s *Server) logTail() []byte {
	text, err := os.ReadFile(filepath.Join(s.dir, "log"))
	if err != nil {
		return []byte(err.Error())
	}
	return text[max(0, len(text)-2000):]
}

// freePorts finds n loopback addresses that are free at the moment.
func freePorts(n int) ([]string, error) {
	out := make([]string, n)
	for i := range out {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // not before all are found: they must differ
		out[i] = l.Addr().String()
	}
	return out, nil
}
