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

// bubbles holds the machine of each test that runs in a bubble.
var bubbles sync.Map // testing.TB to *machine

// tests counts the tests that run in a bubble.
var tests atomic.Int64

// Bubble runs a test in virtual time. The members that it starts, their Lines, and the clients of
// Connect and Etcd share a network and a disk in memory. The test must not call t.Run or
// t.Parallel: libraries keep channels in pools, and the channels of one bubble must not get into
// another.
func Bubble(t *testing.T, test func(*testing.T)) {
	t.Helper()
	defer func() { // even if the test fails
		runtime.GC() // twice: a pool keeps its content for one more collection
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

// machine is the machine on which the members of a test in a bubble run.
type machine struct {
	*host.Host
	dir string       // for the sockets and data of the test
	n   atomic.Int64 // directories made so far
}

// machineOf returns the machine of a test, nil if the test runs in real time.
func machineOf(t testing.TB) *machine {
	m, _ := bubbles.Load(t)
	out, _ := m.(*machine)
	return out
}

// Host returns a machine of the bubble in which a test runs, or nil for the real machine.
func Host(t testing.TB) *host.Host {
	if m := machineOf(t); m != nil {
		return m.Host
	}
	return nil
}

// Listen opens a socket, in memory if the test runs in a bubble.
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

// Dialer returns a function that connects to sockets that Listen opened. Its argument is the path
// of a socket or an endpoint.
func Dialer(t testing.TB) func(ctx context.Context, at string) (net.Conn, error) {
	if machineOf(t) != nil {
		return virtual.DialEndpoint
	}
	return func(ctx context.Context, at string) (net.Conn, error) {
		at = strings.TrimPrefix(strings.TrimPrefix(at, "unix:"), "//")
		return new(net.Dialer).DialContext(ctx, "unix", at)
	}
}
