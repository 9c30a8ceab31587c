//go:build unix

package listen

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
)

// canTry says that a socket can be read without waiting.
const canTry = true

// readSocket waits until there is something to read, takes a buffer, and reads.
func (f *inflow) readSocket() (int, error) {
	f.n, f.fail = 0, nil
	if err := f.socket.Read(f.try); err != nil {
		return 0, err
	}
	switch {
	case f.fail != nil:
		remote, local := f.conn.RemoteAddr(), f.conn.LocalAddr()
		return 0, &net.OpError{
			Op: "read", Net: remote.Network(), Source: local, Addr: remote,
			Err: os.NewSyscallError("read", f.fail),
		}
	case f.n == 0:
		return 0, io.EOF
	}
	f.rest = f.held[:f.n]
	return f.n, nil
}

// tryRead reads if there is anything, and otherwise holds no buffer.
func (f *inflow) tryRead(fd uintptr) (done bool) {
	f.held = readBuffers.Get().(*[readBuffer]byte)
	for {
		// Not golang.org/x/sys/unix: the race detector knows this one from net.
		f.n, f.fail = syscall.Read(int(fd), f.held[:])
		if !errors.Is(f.fail, syscall.EINTR) {
			break
		}
	}
	if f.fail != nil {
		f.n = 0
	}
	done = !errors.Is(f.fail, syscall.EAGAIN)
	if f.n == 0 {
		f.giveBack()
	}
	return done
}
