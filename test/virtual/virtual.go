// Package virtual runs members in the virtual time of testing/synctest, with an in-memory network
// and in-memory disks. The timing of such a test does not depend on whether the machine is slow,
// busy or paused.
//
//	func TestX(t *testing.T) {
//		virtual.Test(t, func(t *testing.T) {
//			host.Use(&cfg, virtual.Host())
//			…
//		})
//	}
//
// All tests in a process share the network used by Host and Dial, including its addresses. They
// share Unix sockets as well, so each test uses paths in its own directories. Clients connect with
// Dial or the GRPC option. A test that injects network faults creates its own network with
// NewNetwork.
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

// Test runs f in a bubble, in parallel with other tests. The test fails if f leaks goroutines.
func Test(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(time.Minute) }) // time for goroutines that are still stopping
		f(t)
	})
}

// Step runs f as a step of a test that cannot have subtests because it runs in a bubble. If f
// fails, the log names the step.
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

// shared is the network shared by all tests in a process.
var shared = NewNetwork(Conditions{Delay: latency}, nil, nil)

// latency is the delay applied to all data. Without it, calls would take no time, and a loop of
// calls would prevent the clock from advancing.
const latency = 20 * time.Microsecond

// outside is the machine of all test clients.
var outside = shared.Machine("")

// Host returns a new machine with an empty disk. To use the real disk instead, set FS to nil.
func Host() *host.Host { return shared.Machine("").Host(crashfs.New()) }

// Listen implements host.Host.
func Listen(ctx context.Context, u url.URL) (net.Listener, error) { return outside.Listen(ctx, u) }

// Dial connects to a listener. The address can be a gRPC target.
func Dial(ctx context.Context, network, at string) (net.Conn, error) {
	return outside.Dial(ctx, network, at)
}

// DialEndpoint connects to an endpoint in the form used by the Go client.
func DialEndpoint(ctx context.Context, endpoint string) (net.Conn, error) {
	return outside.Dial(ctx, "", endpoint)
}

// GRPC returns a dial option that makes a gRPC client connect through Dial.
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
// for it. A nil channel blocks forever too.
//
//go:linkname etcdNever go.etcd.io/etcd/client/v3.valCtxCh
var etcdNever chan struct{}

func init() { etcdNever = nil }
