package compare

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
)

// ZooKeeper returns the target for ZooKeeper from Debian's package libzookeeper-java, with its
// default settings.
func ZooKeeper() Target {
	return Target{
		Name: "zookeeper", Path: "java", Open: openZooKeeper, WarmUp: 8 * time.Second,
		Args: []string{
			"-cp", "/usr/share/java/zookeeper.jar",
			"org.apache.zookeeper.server.ZooKeeperServerMain",
		},
		Foreign: &Foreign{Prepare: prepareZooKeeper, Answers: zooKeeperAnswers},
	}
}

// prepareZooKeeper writes a configuration file. By default, ZooKeeper syncs every write before
// acknowledging it.
func prepareZooKeeper(dir, addr string) ([]string, error) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "zoo.cfg")
	text := fmt.Sprintf("tickTime=2000\ndataDir=%s\nclientPortAddress=%s\nclientPort=%s\n"+
		"maxClientCnxns=0\nadmin.enableServer=false\n", filepath.Join(dir, "data"), host, port)
	return []string{file}, os.WriteFile(file, []byte(text), 0o600)
}

// zooKeeperAnswers queries the server's mode, which is available once the server is ready. (A
// session opened earlier gets no answer for seconds.)
func zooKeeperAnswers(_ context.Context, addr string) error {
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

// zooKeeperSession is a ZooKeeper session.
type zooKeeperSession struct{ c *zk.Conn }

func openZooKeeper(endpoints []string) (Session, error) {
	quiet := func(c *zk.Conn) { c.SetLogger(noLogger{}) }
	c, events, err := zk.Connect(endpoints, 20*time.Second, quiet)
	if err != nil {
		return nil, err
	}
	go func() {
		for range events {
			// This goroutine ends when the connection is closed.
		}
	}()
	return zooKeeperSession{c}, nil
}

type noLogger struct{}

// Printf implements zk.Logger.
func (noLogger) Printf(string, ...any) {}

var worldACL = zk.WorldACL(zk.PermAll)

// Put implements Session. It sets the node's data, and creates the node if it does not exist.
func (s zooKeeperSession) Put(_ context.Context, key string, value []byte) error {
	_, err := s.c.Set("/"+filepath.Base(key), value, -1)
	if err == zk.ErrNoNode {
		_, err = s.c.Create("/"+filepath.Base(key), value, 0, worldACL)
	}
	return err
}

// Get implements Session. The result may be stale.
func (s zooKeeperSession) Get(_ context.Context, key string) error {
	_, _, err := s.c.Get("/" + filepath.Base(key))
	return err
}

// Locker implements Session.
func (s zooKeeperSession) Locker(_ context.Context, name string) (Locker, error) {
	return zooKeeperLocker{zk.NewLock(s.c, "/"+filepath.Base(name), worldACL)}, nil
}

// zooKeeperLocker uses the client library's lock recipe.
type zooKeeperLocker struct{ l *zk.Lock }

// Lock implements Locker.
func (l zooKeeperLocker) Lock(context.Context) error { return l.l.Lock() }

// Unlock implements Locker.
func (l zooKeeperLocker) Unlock(context.Context) error { return l.l.Unlock() }

// Close implements Session.
func (s zooKeeperSession) Close() error {
	s.c.Close()
	return nil
}
