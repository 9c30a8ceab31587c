package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"leasehold.dev/test/process"
)

// A kind is one of the servers being compared.
type kind struct {
	name string
	path string
	args []string // arguments before the flags
	ours bool
}

// A cluster consists of a few members of one kind. Only one goroutine may call its methods, but its
// clients are safe for concurrent use.
type cluster struct {
	members []*member
}

// A member is a server process with a client that connects only to it.
type member struct {
	name   string
	client *clientv3.Client

	url, peer string
	dir       string

	*process.Process // nil before it is launched
}

// start runs n members with empty directories below dir, and returns once each answers a
// linearizable read.
func start(ctx context.Context, k kind, dir string, n int) (*cluster, error) {
	c := &cluster{}
	var initial []string
	for i := range n {
		m := &member{
			name: fmt.Sprintf("m%d", i), dir: filepath.Join(dir, fmt.Sprintf("m%d", i)),
			url: "http://" + process.MustFreeAddr(), peer: "http://" + process.MustFreeAddr(),
		}
		c.members = append(c.members, m)
		initial = append(initial, m.name+"="+m.peer)
	}
	for _, m := range c.members {
		if err := m.launch(k, strings.Join(initial, ",")); err != nil {
			return nil, errors.Join(err, c.close())
		}
	}
	for _, m := range c.members {
		if err := m.ready(ctx); err != nil {
			return nil, errors.Join(err, c.close())
		}
	}
	return c, nil
}

func (m *member) launch(k kind, initial string) error {
	if err := os.MkdirAll(m.dir, 0o700); err != nil {
		return err
	}
	cmd := exec.Command(k.path, append(k.args,
		"--name", m.name, "--data-dir", filepath.Join(m.dir, "data"),
		"--listen-client-urls", m.url, "--advertise-client-urls", m.url,
		"--listen-peer-urls", m.peer, "--initial-advertise-peer-urls", m.peer,
		"--initial-cluster", initial, "--initial-cluster-token", filepath.Base(filepath.Dir(m.dir)),
		"--log-level", "warn")...)
	p, err := process.Start(cmd, filepath.Join(m.dir, "log"), "")
	if err != nil {
		return err
	}
	m.Process = p
	m.client, err = clientv3.New(clientv3.Config{
		Endpoints: []string{m.url}, DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
	})
	return err
}

func (m *member) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		try, cancel := context.WithTimeout(ctx, time.Second)
		_, err := m.client.Get(try, "ready")
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-m.Done():
			return fmt.Errorf("%s ended: %s", m.name, m.Tail())
		case <-ctx.Done():
			return fmt.Errorf("%s does not serve: %w\n%s", m.name, err, m.Tail())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// metric returns the value of one of the member's counters, or NaN if it cannot be read.
func (m *member) metric(ctx context.Context, name string) float64 {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, m.url+"/metrics", nil)
	if err != nil {
		return math.NaN()
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return math.NaN()
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if text, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			v, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return math.NaN()
			}
			return v
		}
	}
	return math.NaN()
}

// close kills the processes.
func (c *cluster) close() error {
	var errs []error
	for _, m := range c.members {
		if m.client != nil {
			errs = append(errs, m.client.Close())
		}
		if m.Process == nil {
			continue
		}
		errs = append(errs, m.Signal(syscall.SIGKILL))
		<-m.Done()
	}
	return errors.Join(errs...)
}

// leader waits until there is a leader and returns it and the other members.
func (c *cluster) leader(ctx context.Context) (*member, []*member, error) {
	for {
		for i, m := range c.members {
			try, cancel := context.WithTimeout(ctx, time.Second)
			s, err := m.client.Status(try, m.url)
			cancel()
			if err == nil && s.Leader == s.Header.MemberId {
				return m, append(append([]*member{}, c.members[:i]...), c.members[i+1:]...), nil
			}
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return nil, nil, errors.Join(errors.New("nobody leads"), err)
		}
	}
}
