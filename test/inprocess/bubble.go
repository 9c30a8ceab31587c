package inprocess

import (
	"context"
	"net"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// bubbles has the network of each test that runs in a bubble.
var bubbles sync.Map // testing.TB to *network

// Bubble runs a test in virtual time. The members that it starts, their Lines, and the clients of
// Connect and Etcd share a network and a disk in memory. The test must
// not call t.Run or t.Parallel: libraries keep channels in pools, and those of one bubble must not
// get into another.
func Bubble(t *testing.T, test func(*testing.T)) {
	t.Helper()
	defer func() { // although the test fails
		runtime.GC() // twice: a pool keeps its content for one more
		runtime.GC()
	}()
	synctest.Test(t, func(t *testing.T) {
		bubbles.Store(t, newNetwork())
		t.Cleanup(func() {
			bubbles.Delete(t)
			time.Sleep(time.Hour) // some goroutines end only when a timer fires
		})
		test(t)
	})
}

// Case runs a part of a test in a bubble, where t.Run is not possible, and names it if it fails.
func Case(t *testing.T, name string, test func(*testing.T)) {
	t.Helper()
	failed := t.Failed()
	defer func() {
		if !failed && t.Failed() {
			t.Logf("the failed case is %q", name)
		}
	}()
	test(t)
}

// networkOf returns the network of a test, nil if it runs in real time.
func networkOf(t testing.TB) *network {
	n, _ := bubbles.Load(t)
	out, _ := n.(*network)
	return out
}

// Listen opens a socket, in memory if the test runs in a bubble.
func Listen(t testing.TB, path string) net.Listener {
	t.Helper()
	listen := func(path string) (net.Listener, error) { return net.Listen("unix", path) }
	if n := networkOf(t); n != nil {
		listen = n.listen
	}
	l, err := listen(path)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Dialer returns a function that connects to sockets as Listen opens them. It takes the path of one
// or an endpoint.
func Dialer(t testing.TB) func(ctx context.Context, at string) (net.Conn, error) {
	if n := networkOf(t); n != nil {
		return n.dial
	}
	return func(ctx context.Context, at string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socketPath(at))
	}
}
