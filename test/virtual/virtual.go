// Package virtual runs members in the virtual time of testing/synctest, with a network and disks in
// memory. However slow, busy or paused the machine is, such a test sees the same times.
//
//	func TestX(t *testing.T) {
//		virtual.Test(t, func(t *testing.T) {
//			cfg.Host = virtual.Host()
//			…
//		})
//	}
//
// The network of Host and Dial has one name space for all tests of a process, like that of Unix
// sockets: paths in the test's own directory keep tests apart. Clients connect with Dial, or with
// the option GRPC. A test that breaks the network makes one of its own, with NewNetwork.
package virtual

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	_ "unsafe" // for go:linkname

	"google.golang.org/grpc"

	"leasehold.dev/internal/host"
	"leasehold.dev/test/crashfs"
)

// Test runs f in a bubble, in parallel with other tests. It fails if f leaves goroutines behind.
func Test(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(time.Minute) }) // goroutines end that the others have stopped
		f(t)
	})
}

// Step runs f as a part of a test that has no subtests because it runs in a bubble. If f fails,
// the log names it.
func Step(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	failed := t.Failed()
	defer func() {
		if t.Failed() && !failed {
			t.Logf("failed in step %q", name)
		}
	}()
	f(t)
}

// shared joins the machines of all tests of a process.
var shared = NewNetwork(Weather{Delay: latency}, nil, nil)

// latency is how long after it was sent a reader gets something. Without it all calls would take no
// time at all, and a loop of calls would stop the time.
const latency = 20 * time.Microsecond

// outside is where the clients of tests are.
var outside = shared.Machine("")

// Host returns a new machine with an empty disk. Set FS to nil to use the disk of the real machine.
func Host() *host.Host { return shared.Machine("").Host(crashfs.New()) }

// Listen implements host.Host.
func Listen(ctx context.Context, u url.URL) (net.Listener, error) { return outside.Listen(ctx, u) }

// Dial connects to a listener. The address may be the target of a gRPC client.
func Dial(ctx context.Context, network, at string) (net.Conn, error) {
	return outside.Dial(ctx, network, at)
}

// DialEndpoint connects to an endpoint of the Go client.
func DialEndpoint(ctx context.Context, endpoint string) (net.Conn, error) {
	return outside.Dial(ctx, "", endpoint)
}

// GRPC makes a gRPC client connect with Dial.
func GRPC() grpc.DialOption { return grpc.WithContextDialer(DialEndpoint) }

// ports counts the ports that Port has opened.
var ports atomic.Int64

// Port opens a port at 127.0.0.1 that no other test has.
func Port(t testing.TB) net.Listener {
	t.Helper()
	at := fmt.Sprintf("127.0.0.1:%d", 10_000+ports.Add(1))
	l, err := Listen(t.Context(), url.URL{Host: at})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// etcdNever is a channel that etcd's client makes when the program begins, for watches whose
// context never ends. It belongs to no bubble, so time would stand still while a goroutine waits
// for it. A nil channel blocks just as well.
//
//go:linkname etcdNever go.etcd.io/etcd/client/v3.valCtxCh
var etcdNever chan struct{}

func init() { etcdNever = nil }
