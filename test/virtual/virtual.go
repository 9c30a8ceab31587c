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
// The network has one name space for all tests of a process, like that of Unix sockets: paths in
// the test's own directory keep tests apart. Clients connect with Dial, or with the option GRPC.
package virtual

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"path"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
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

// Host returns a new machine with an empty disk. Set FS to nil to use the disk of the real machine.
func Host() *host.Host {
	return &host.Host{Boot: Boot, Listen: Listen, Dial: Dial, FS: crashfs.New()}
}

// Boot reads the clock of a machine.
func Boot() time.Duration { return time.Since(epoch) }

// epoch is an hour before each bubble begins.
var epoch = time.Date(1999, time.December, 31, 23, 0, 0, 0, time.UTC)

var (
	mu        sync.Mutex // guards listeners
	listeners = make(map[string]*listener)
)

// listener accepts connections at an address.
type listener struct {
	at   string
	in   chan net.Conn
	done chan struct{}
	once sync.Once
}

// Listen implements host.Host.
func Listen(_ context.Context, u url.URL) (net.Listener, error) {
	at := u.Host
	if strings.HasPrefix(u.Scheme, "unix") {
		at = u.Host + u.Path
	}
	mu.Lock()
	defer mu.Unlock()
	if listeners[at] != nil {
		return nil, fmt.Errorf("listen on %s: %w", u.String(), syscall.EADDRINUSE)
	}
	l := &listener{at: at, in: make(chan net.Conn, 128), done: make(chan struct{})}
	listeners[at] = l
	return l, nil
}

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

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.in:
		return c, nil
	case <-l.done:
		return nil, &net.OpError{Op: "accept", Net: "unix", Addr: addr(l.at), Err: net.ErrClosed}
	}
}

// Close implements net.Listener.
func (l *listener) Close() error {
	l.once.Do(func() {
		mu.Lock()
		defer mu.Unlock()
		delete(listeners, l.at)
		close(l.done)
	})
	for {
		select {
		case c := <-l.in: // not accepted
			_ = c.Close()
		default:
			return nil
		}
	}
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return addr(l.at) }

// Dial connects to a listener. The address may be the target of a gRPC client.
func Dial(_ context.Context, _, at string) (net.Conn, error) {
	if scheme, rest, ok := strings.Cut(at, ":"); ok && strings.HasPrefix(scheme, "unix") {
		at = path.Clean("/" + rest)
	}
	mu.Lock()
	defer mu.Unlock()
	l := listeners[at]
	if l == nil {
		return nil, refused(at)
	}
	there, back := newPipe(), newPipe()
	here, far := addr(""), addr(at)
	select {
	case l.in <- &conn{in: there, out: back, local: far, remote: here}:
		return &conn{in: back, out: there, local: here, remote: far}, nil
	default:
		return nil, refused(at) // too many are not accepted yet
	}
}

func refused(at string) error {
	return &net.OpError{Op: "dial", Net: "unix", Addr: addr(at), Err: syscall.ECONNREFUSED}
}

// DialEndpoint connects to an endpoint of the Go client.
func DialEndpoint(ctx context.Context, endpoint string) (net.Conn, error) {
	return Dial(ctx, "unix", endpoint)
}

// GRPC makes a gRPC client connect with Dial.
func GRPC() grpc.DialOption {
	return grpc.WithContextDialer(func(ctx context.Context, at string) (net.Conn, error) {
		return Dial(ctx, "unix", at)
	})
}

// addr returns an address like that of a Unix socket.
func addr(at string) net.Addr { return &net.UnixAddr{Name: at, Net: "unix"} }

// etcdNever is a channel that etcd's client makes when the program begins, for watches whose
// context never ends. It belongs to no bubble, so time would stand still while a goroutine waits
// for it. A nil channel blocks just as well.
//
//go:linkname etcdNever go.etcd.io/etcd/client/v3.valCtxCh
var etcdNever chan struct{}

func init() { etcdNever = nil }
