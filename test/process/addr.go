package process

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
)

// blockSize is the number of ports in a block. A process claims a block by listening on its first
// port.
const blockSize = 100

// blocks holds the ports reserved for this process while it runs.
var blocks struct {
	mu sync.Mutex
	// claims are listeners on the first port of each block, which keep other processes away.
	claims []net.Listener
	next   int // next port
	end    int
}

// MustFreeAddr returns a loopback address that nothing listens on and that neither this process nor
// any other process that is still running has returned before. This matters because packages are
// tested in parallel, and a port has no listener while its member is down. The port is below the
// range that the kernel uses for outgoing connections, so no connection takes it before its server
// starts. It panics if there is no such address.
func MustFreeAddr() string {
	blocks.mu.Lock()
	defer blocks.mu.Unlock()
	for range 1000 {
		if blocks.next == blocks.end && !claimBlock() {
			continue
		}
		port := blocks.next
		blocks.next++
		if addr, ok := free(port); ok {
			return addr
		}
	}
	panic("process: no port is free")
}

// claimBlock tries to claim another block for this process. It keeps the claim to the previous
// block.
func claimBlock() bool {
	first := 10_000 + rand.IntN(20_000/blockSize)*blockSize
	l, err := listen(first)
	if err != nil {
		return false
	}
	blocks.claims = append(blocks.claims, l)
	blocks.next, blocks.end = first+1, first+blockSize
	return true
}

// free reports whether nothing listens on a port. No process may be started meanwhile: between fork
// and exec, it would hold a copy of the listener and keep the port in use.
func free(port int) (addr string, ok bool) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	l, err := listen(port)
	if err != nil {
		return "", false
	}
	return l.Addr().String(), l.Close() == nil
}

func listen(port int) (net.Listener, error) {
	return net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
}
