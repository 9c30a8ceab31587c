package inprocess

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"leasehold.dev/internal/host"
	"leasehold.dev/internal/listen"
	"leasehold.dev/test/virtual"
)

// bubbles maps each test that runs in a bubble to its machine.
var bubbles sync.Map // testing.TB to *machine

// tests counts the tests that run in bubbles.
var tests atomic.Int64

// Bubble runs a test in virtual time. Members started by the test, their Lines, and clients created
// with Connect and Etcd share a simulated network and an in-memory disk. The test must not call
// t.Run or t.Parallel: libraries keep channels in pools, and a channel must not move from one
// bubble to another.
func Bubble(t *testing.T, test func(*testing.T)) {
	t.Helper()
	defer func() { // even if the test fails
		runtime.GC() // twice, because a pool keeps its contents for one extra collection
		runtime.GC()
	}()
	synctest.Test(t, func(t *testing.T) {
		bubbles.Store(t, &machine{Host: virtual.Host(), dir: fmt.Sprint("/", tests.Add(1))})
		t.Cleanup(func() {
			bubbles.Delete(t)
			time.Sleep(time.Hour) // some goroutines end only when a timer fires
		})
		test(t)
	})
}

// machine is the simulated machine that runs all members of a test in a bubble.
type machine struct {
	*host.Host
	dir string       // for the test's sockets and data
	n   atomic.Int64 // number of directories created so far
}

// machineOf returns the machine of a test, or nil if the test runs in real time.
func machineOf(t testing.TB) *machine {
	m, _ := bubbles.Load(t)
	out, _ := m.(*machine)
	return out
}

// Host returns a machine of the test's bubble, or nil if the test runs in real time.
func Host(t testing.TB) *host.Host {
	if m := machineOf(t); m != nil {
		return m.Host
	}
	return nil
}

// Listen opens a socket. If the test runs in a bubble, the socket is in memory.
func Listen(t testing.TB, path string) net.Listener {
	t.Helper()
	listen := listen.Listen
	if m := machineOf(t); m != nil {
		listen = m.Listen
	}
	l, err := listen(t.Context(), url.URL{Scheme: "unix", Path: path})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Dialer returns a function that connects to sockets opened by Listen. The function takes a socket
// path or an endpoint.
func Dialer(t testing.TB) func(ctx context.Context, at string) (net.Conn, error) {
	if machineOf(t) != nil {
		return virtual.DialEndpoint
	}
	return func(ctx context.Context, at string) (net.Conn, error) {
		at = strings.TrimPrefix(strings.TrimPrefix(at, "unix:"), "//")
		return new(net.Dialer).DialContext(ctx, "unix", at)
	}
}
