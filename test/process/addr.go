package process

import (
	"errors"
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

// MustFreeAddr returns a loopback address that nothing listens on and that no running process,
// including this one, has returned before. This matters because packages are tested in parallel,
// and a port has no listener while its member is down. The port is below the range that the kernel
// uses for outgoing connections, so no connection takes it before its server starts. It panics if
// no such address is available.
func MustFreeAddr() string {
	blocks.mu.Lock()
	defer blocks.mu.Unlock()
	for range 1000 {
		if blocks.next == blocks.end && !claimBlock() {
			continue
		}
		addr := address(blocks.next)
		blocks.next++
		if free(addr) {
			return addr
		}
	}
	panic("process: no port is free")
}

// claimBlock tries to claim another block for this process. It keeps the claim to the previous
// block.
func claimBlock() bool {
	first := 10_000 + rand.IntN(20_000/blockSize)*blockSize
	l, err := net.Listen("tcp", address(first))
	if err != nil {
		return false
	}
	blocks.claims = append(blocks.claims, l)
	blocks.next, blocks.end = first+1, first+blockSize
	return true
}

// free reports whether nothing listens on an address. It connects, because a listener would be
// copied into a process that is being started, and would stay open there until the process executes
// its program.
func free(addr string) bool {
	c, err := net.Dial("tcp", addr)
	if err == nil {
		_ = c.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

func address(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }
