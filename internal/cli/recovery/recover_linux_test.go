package recovery

import (
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"leasehold.dev/internal/cli/app"
)

// cutOff returns an address where connections are neither accepted nor refused, because the accept
// queue is full.
func cutOff(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	at := fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port)
	c, err := net.Dial("tcp", at) // fills the accept queue
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return at
}

// TestAnswersIfAnotherAddressHangs checks that a member counts as running if it answers at its
// client URL but is unreachable at its peer URL.
func TestAnswersIfAnotherAddressHangs(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a := &app.App{}
	a.Flags.DialTimeout = time.Minute
	began := time.Now()
	at := (&recovery{App: a}).answers([]string{"http://" + cutOff(t), "http://" + l.Addr().String()})
	if at != l.Addr().String() {
		t.Errorf("after %[2]s, got %[1]q, want %[3]s", at, time.Since(began), l.Addr())
	}
}
