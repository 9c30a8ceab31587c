package recovery

import (
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"leasehold.dev/internal/cli/app"
)

// cutOff returns an address at which a connection is neither taken nor refused: its queue is full.
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
	c, err := net.Dial("tcp", at) // it fills the queue
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return at
}

// A member that is cut off from here on the network of members runs, if it answers
// where clients ask.
func TestAnswersBesideOneThatIsCutOff(t *testing.T) {
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
		t.Errorf("%q answers after %s, and %s does", at, time.Since(began), l.Addr())
	}
}
