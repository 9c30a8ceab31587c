// Zookeeper is internal/bench/compare with one server more: ZooKeeper, of Debian's package
// libzookeeper-java, with its default settings.
//
//	go run -C internal/bench/zookeeper . -leasehold /path/to/leasehold \
//		-etcd /path/to/etcd -targets leasehold,etcd,zookeeper -run '^client-'
//
// The leasehold must be built before: this module does not have what it needs.
package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/go-zookeeper/zk"

	"leasehold.dev/internal/bench"
	"leasehold.dev/internal/bench/command"
)

func main() {
	command.Main(bench.Target{
		Name: "zookeeper", Path: "java", Open: open, WarmUp: 8 * time.Second,
		Args: []string{
			"-cp", "/usr/share/java/zookeeper.jar",
			"org.apache.zookeeper.server.ZooKeeperServerMain",
		},
		Foreign: &bench.Foreign{Prepare: prepare, Answers: answers},
	})
}

// prepare writes a configuration. Every write is synced before it is acknowledged, as is
// ZooKeeper's default.
func prepare(dir, addr string) ([]string, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "zoo.cfg")
	text := fmt.Sprintf("tickTime=2000\ndataDir=%s\nclientPortAddress=%s\nclientPort=%s\n"+
		"maxClientCnxns=0\nadmin.enableServer=false\n", filepath.Join(dir, "data"), host, port)
	return []string{file}, os.WriteFile(file, []byte(text), 0o600)
}

// answers asks for the server's mode, which it has once it serves. (A session that is opened
// before is not answered for seconds.)
func answers(_ context.Context, addr string) error {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "srvr"); err != nil {
		return err
	}
	text, err := io.ReadAll(conn)
	if err == nil && !bytes.Contains(text, []byte("Mode:")) {
		err = fmt.Errorf("zookeeper says %q", text)
	}
	return err
}

// session is a session of ZooKeeper's.
type session struct{ c *zk.Conn }

func open(endpoints []string) (bench.Session, error) {
	quiet := func(c *zk.Conn) { c.SetLogger(silence{}) }
	c, events, err := zk.Connect(endpoints, 20*time.Second, quiet)
	if err != nil {
		return nil, err
	}
	go func() {
		for range events {
			// It is closed with the connection.
		}
	}()
	return session{c}, nil
}

type silence struct{}

// Printf implements zk.Logger.
func (silence) Printf(string, ...any) {}

var anyone = zk.WorldACL(zk.PermAll)

// Put implements bench.Session: a set, and a create at first.
func (s session) Put(_ context.Context, key string, value []byte) error {
	_, err := s.c.Set("/"+filepath.Base(key), value, -1)
	if err == zk.ErrNoNode {
		_, err = s.c.Create("/"+filepath.Base(key), value, 0, anyone)
	}
	return err
}

// Get implements bench.Session. What it reads may be old.
func (s session) Get(_ context.Context, key string) error {
	_, _, err := s.c.Get("/" + filepath.Base(key))
	return err
}

// Grant implements bench.Session. A session is ZooKeeper's lease, and there is nothing
// smaller.
func (session) Grant(context.Context) error {
	return fmt.Errorf("zookeeper has no leases but sessions")
}

// Locker implements bench.Session.
func (s session) Locker(_ context.Context, name string) (bench.Locker, error) {
	return locker{zk.NewLock(s.c, "/"+filepath.Base(name), anyone)}, nil
}

// locker is the client's own recipe.
type locker struct{ l *zk.Lock }

// Lock implements bench.Locker.
func (l locker) Lock(context.Context) error { return l.l.Lock() }

// Unlock implements bench.Locker.
func (l locker) Unlock(context.Context) error { return l.l.Unlock() }

// Close implements bench.Session.
func (s session) Close() error {
	s.c.Close()
	return nil
}
