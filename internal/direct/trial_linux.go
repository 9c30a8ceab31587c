package direct

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// canRest says that streams can rest here.
const canRest = true

// read is for a syscall.RawConn, and does not wait.
func (t *trial) read(fd uintptr) bool {
	// Not golang.org/x/sys/unix: the race detector knows this one from net.
	t.try(func() (int, error) { return syscall.Read(int(fd), t.p) })
	if t.err == nil && t.n == 0 && len(t.p) > 0 {
		t.err = io.EOF
	}
	if t.waits() {
		t.err = errWouldWait
	}
	return true
}

// write is read for writing: what there is no room for is not written.
func (t *trial) write(fd uintptr) bool {
	t.try(func() (int, error) { return syscall.Write(int(fd), t.p) })
	if t.waits() {
		t.err = nil
	}
	return true
}

// try does a system call until no signal interrupts it.
func (t *trial) try(do func() (int, error)) {
	t.err = syscall.EINTR
	for errors.Is(t.err, syscall.EINTR) {
		t.n, t.err = do()
	}
	if t.err != nil {
		t.n = 0
		if !t.waits() {
			t.err = os.NewSyscallError("socket", t.err)
		}
	}
}

func (t *trial) waits() bool { return errors.Is(t.err, syscall.EAGAIN) }
