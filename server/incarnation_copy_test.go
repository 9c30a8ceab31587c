package server

import (
	"errors"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"leasehold.dev/internal/member/identity"
	"leasehold.dev/test/harness"
	"leasehold.dev/test/virtual"
)

// copied returns the configuration of a second process with the same identity as c. It uses a copy
// of the data directory and listens on different sockets.
func copied(t *testing.T, c Config) Config {
	t.Helper()
	dir := shortDir(t)
	data := filepath.Join(dir, "data")
	if err := os.CopyFS(data, os.DirFS(c.DataDir)); err != nil {
		t.Fatal(err)
	}
	c.DataDir = data
	c.URLs.ListenClient = []url.URL{{Scheme: "unix", Path: filepath.Join(dir, "s")}}
	c.URLs.ListenPeer = []url.URL{{Scheme: "unix", Path: filepath.Join(dir, "p")}}
	return c
}

// TestCopiedData checks that a copy of a member's data directory is rejected, with advice, while
// the member itself is running. Members report the copy, and the cluster keeps running. A restart
// is not mistaken for a copy.
func TestCopiedData(t *testing.T) { virtual.Test(t, testCopiedData) }

func testCopiedData(t *testing.T) {
	configs := clusterConfigs(t, 3)
	onDisk(configs...)
	logs := make([]harness.Log, 3)
	for i := range configs {
		configs[i].Logger = slog.New(slog.NewTextHandler(&logs[i], nil))
	}
	members := runAll(t, configs...)
	if err := members[1].stop(); err != nil {
		t.Fatal(err)
	}
	c := copied(t, configs[1])
	first := launch(t, configs[1])
	for i, m := range []*Server{members[0].Server, first.Server, members[2].Server} {
		if n := m.peers.Copies(); n != 0 {
			t.Errorf("m%d took a restart for a copy, %d times", i+1, n)
		}
	}
	second := launch(t, c)
	rest, err := first, error(nil)
	select {
	case err = <-second.done:
	case err = <-first.done: // the machine was so slow that the first process seemed dead
		rest, c = second, configs[1]
	case <-time.After(time.Minute):
		t.Fatal("neither of them ended")
	}
	if !errors.Is(err, identity.ErrCopied) || !strings.Contains(err.Error(), c.DataDir) {
		t.Errorf("it ended with %v", err)
	}
	eventually(t, "the others know", func() bool {
		return members[0].peers.Copies() > 0 && logs[0].Contains("identity of the same member") ||
			members[2].peers.Copies() > 0 && logs[2].Contains("identity of the same member")
	})
	eventually(t, "the one that goes on is told", func() bool {
		return rest.peers.CopyRefused(time.Now()) &&
			logs[1].Contains("a copy of this member's data directory")
	})
	if e := rest.node.Status().Errors; len(e) != 1 || !strings.Contains(e[0], "copy") {
		t.Errorf("its status has the errors %q", e)
	}
	members[0].put(t, "k", "w")
	eventually(t, "the one that goes on follows", func() bool {
		return (&running{Server: rest.Server}).has("k") == "w"
	})
}

// launched is a member that may stop on its own.
type launched struct {
	*Server
	done chan error
}

// launch starts a member and waits until it is serving or has stopped.
func launch(t *testing.T, c Config) launched {
	t.Helper()
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	l := launched{s, make(chan error, 1)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.done <- s.Run(t.Context())
	}()
	t.Cleanup(func() { <-ended })
	select {
	case <-s.Ready():
	case <-ended:
	}
	return l
}
