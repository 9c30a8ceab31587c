// Package virtual runs members in the virtual time of testing/synctest, with a network and disks in
// memory. Such a test sees the same times however slow, busy or paused the machine is.
//
//	func TestX(t *testing.T) {
//		virtual.Test(t, func(t *testing.T) {
//			host.Use(&cfg, virtual.Host())
//			…
//		})
//	}
//
// All tests of a process share the network of Host and Dial and its addresses, as they share Unix
// sockets: tests stay apart by paths in their own directories. Clients connect with Dial or the
// option GRPC. A test that injects network faults makes its own network with NewNetwork.
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
		t.Cleanup(func() { time.Sleep(time.Minute) }) // for goroutines that are still stopping
		f(t)
	})
}

// Step runs f as a part of a test that cannot have subtests, since it runs in a bubble. If f fails,
// the log names the step.
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

// shared connects the machines of all tests of a process.
var shared = NewNetwork(Conditions{Delay: latency}, nil, nil)

// latency is the delay of all data. Without it, calls would take no time, and a loop of calls would
// stop the clock.
const latency = 20 * time.Microsecond

// outside is the machine of the tests' clients.
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

var ports atomic.Int64

// Port opens a port on 127.0.0.1 that no other test uses.
func Port(t testing.TB) net.Listener {
	t.Helper()
	at := fmt.Sprintf("127.0.0.1:%d", 10_000+ports.Add(1))
	l, err := Listen(t.Context(), url.URL{Host: at})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// etcdNever is a channel that the etcd client creates at program start, for watches whose context
// never ends. It does not belong to any bubble, so virtual time would stop while a goroutine waits
// for it. A nil channel blocks equally well.
//
//go:linkname etcdNever go.etcd.io/etcd/client/v3.valCtxCh
var etcdNever chan struct{}

func init() { etcdNever = nil }
