package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"leasehold.dev/internal/listen"
	"leasehold.dev/test/process"
)

// patience is the timeout of every operation.
const patience = 60 * time.Second

// cluster is the cluster used by a case: members and, in some cases, a relay.
type cluster struct {
	given   given
	dir     string
	binary  string
	members []*member
	relay   *member
	cert    listen.TLS // self-signed; the zero value without TLS
	admin   *clientv3.Client
}

// member is a process of the binary, either a member or a relay.
type member struct {
	args []string
	addr string // for clients
	log  string
	*process.Process
}

func (m *member) start(binary string) error {
	p, err := process.Start(exec.Command(binary, m.args...), m.log, "--- started")
	if err == nil {
		m.Process = p
	}
	return err
}

// startCluster starts members and waits until they are serving.
func startCluster(ctx context.Context, g given, binary, dir string) (_ *cluster, err error) {
	c := &cluster{given: g, dir: dir, binary: binary}
	defer func() {
		if err != nil {
			c.stop()
		}
	}()
	if g.TLS {
		if c.cert, err = (listen.TLS{Auto: true}).SelfSigned(dir, nil); err != nil {
			return nil, err
		}
	}
	c.configure()
	for _, m := range c.members {
		if err := m.start(binary); err != nil {
			return nil, err
		}
	}
	if err := c.connect(); err != nil {
		return nil, err
	}
	if err := c.ready(ctx); err != nil {
		return nil, err
	}
	if g.Users {
		if err := c.addUsers(ctx); err != nil {
			return nil, err
		}
	}
	if g.Relay {
		return c, c.startRelay(ctx)
	}
	return c, nil
}

// configure chooses addresses and arguments.
func (c *cluster) configure() {
	var initial []string
	var peers []string
	for i := range c.given.Members {
		peers = append(peers, "http://"+process.MustFreeAddr())
		initial = append(initial, fmt.Sprintf("m%d=%s", i, peers[i]))
	}
	for i, peer := range peers {
		addr := process.MustFreeAddr()
		url := "http://" + addr
		var secure []string
		if c.given.TLS {
			url = "https://" + addr
			secure = []string{
				"--cert-file", c.cert.CertFile, "--key-file", c.cert.KeyFile,
			}
		}
		name := fmt.Sprintf("m%d", i)
		m := &member{addr: addr, log: filepath.Join(c.dir, name+".log")}
		m.args = slices.Concat([]string{
			"serve", "--name", name, "--data-dir", filepath.Join(c.dir, name),
			"--listen-client-urls", url, "--advertise-client-urls", url,
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
			"--initial-cluster", strings.Join(initial, ","),
			"--initial-cluster-token", filepath.Base(c.dir), "--bcrypt-cost", "4",
		}, secure, c.given.Flags)
		c.members = append(c.members, m)
	}
}

// connect creates the runner's own client.
func (c *cluster) connect() error {
	cfg := clientv3.Config{DialTimeout: 5 * time.Second, Logger: zap.NewNop()}
	for _, m := range c.members {
		cfg.Endpoints = append(cfg.Endpoints, m.addr)
	}
	if c.given.TLS {
		var err error
		if cfg.TLS, err = (listen.TLS{TrustedCAFile: c.cert.CertFile}).Client(); err != nil {
			return err
		}
	}
	if c.given.Users && c.admin != nil {
		cfg.Username, cfg.Password = "root", rootPassword
	}
	if c.admin != nil {
		_ = c.admin.Close() // the client has no user yet
	}
	var err error
	c.admin, err = clientv3.New(cfg)
	return err
}

// ready waits until the cluster accepts reads and writes.
func (c *cluster) ready(ctx context.Context) error {
	return eventually(ctx, "the cluster is ready", func(ctx context.Context) error {
		_, err := c.admin.Put(ctx, "ready", "")
		for _, m := range c.members {
			if m.Ended() {
				return fmt.Errorf("a member exited: %s", m.Tail())
			}
			if err == nil {
				_, err = c.admin.Status(ctx, m.addr)
			}
		}
		return err
	})
}

// eventually retries f until it succeeds.
func eventually(ctx context.Context, what string, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		try, done := context.WithTimeout(ctx, 5*time.Second)
		err := f(try)
		done()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// In a cluster with users, app may read and write keys below app/, and reader may read them.
const (
	rootPassword = "root-password"
	appPassword  = "app-password"
)

func (c *cluster) addUsers(ctx context.Context) error {
	var errs []error
	add := func(user, password string, kind clientv3.PermissionType) {
		_, err := c.admin.UserAdd(ctx, user, password)
		errs = append(errs, err)
		_, err = c.admin.RoleAdd(ctx, user)
		errs = append(errs, err)
		if user != "root" {
			_, err = c.admin.RoleGrantPermission(ctx, user, "app/", "app0", kind)
			errs = append(errs, err)
		}
		_, err = c.admin.UserGrantRole(ctx, user, user)
		errs = append(errs, err)
	}
	add("root", rootPassword, 0)
	add("app", appPassword, clientv3.PermissionType(clientv3.PermReadWrite))
	add("reader", appPassword, clientv3.PermissionType(clientv3.PermRead))
	_, err := c.admin.AuthEnable(ctx)
	return errors.Join(append(errs, err, c.connect())...)
}

func (c *cluster) startRelay(ctx context.Context) error {
	var list []string
	for _, m := range c.members {
		list = append(list, m.addr)
	}
	addr := process.MustFreeAddr()
	c.relay = &member{addr: addr, log: filepath.Join(c.dir, "relay.log"), args: []string{
		"relay", "--endpoints", strings.Join(list, ","), "--listen-client-urls", "http://" + addr,
	}}
	if err := c.relay.start(c.binary); err != nil {
		return err
	}
	return eventually(ctx, "the relay is ready", func(ctx context.Context) error {
		if c.relay.Ended() {
			return fmt.Errorf("the relay exited: %s", c.relay.Tail())
		}
		through, err := clientv3.New(clientv3.Config{
			Endpoints: []string{addr}, Logger: zap.NewNop(),
		})
		if err != nil {
			return err
		}
		defer through.Close()
		_, err = through.Get(ctx, "ready")
		return err
	})
}

// targets returns the processes to which clients connect.
func (c *cluster) targets() []*member {
	if c.relay != nil {
		return []*member{c.relay}
	}
	return c.members
}

// choose returns the members selected by a step: a number, "leader", "followers" or "all".
func (c *cluster) choose(ctx context.Context, name string) ([]*member, error) {
	switch name {
	case "all", "":
		return c.targets(), nil
	case "relay":
		return []*member{c.relay}, nil
	case "leader", "followers":
		l, err := c.leader(ctx)
		if name == "leader" || err != nil {
			return []*member{l}, err
		}
		return slices.DeleteFunc(slices.Clone(c.members), func(m *member) bool { return m == l }), nil
	}
	var i int
	if _, err := fmt.Sscan(name, &i); err != nil || i >= len(c.members) {
		return nil, fmt.Errorf("no member %q", name)
	}
	return []*member{c.members[i]}, nil
}

func (c *cluster) leader(ctx context.Context) (leads *member, err error) {
	err = eventually(ctx, "there is a leader", func(ctx context.Context) error {
		for _, m := range c.members {
			if m.Ended() {
				continue
			}
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			s, err := c.admin.Status(ctx, m.addr)
			cancel()
			if err == nil && s.Leader == s.Header.MemberId {
				leads = m
				return nil
			}
		}
		return errors.New("there is no leader")
	})
	return leads, err
}

// stop ends all processes.
func (c *cluster) stop() {
	if c.admin != nil {
		_ = c.admin.Close()
	}
	for _, m := range append(slices.Clone(c.members), c.relay) {
		if m != nil && !m.Ended() {
			_ = m.Signal(syscall.SIGKILL)
			_ = m.Wait()
		}
	}
	_ = os.RemoveAll(c.dir)
}
