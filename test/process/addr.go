package process

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// blockSize is the number of ports in a block. The first port of a block represents the claim to
// it.
const blockSize = 100

// blocks holds the ports that only this process uses, as long as it runs.
var blocks struct {
	mu     sync.Mutex
	claims []net.Listener // on the first port of each: they keep other processes away
	next   int            // port
	end    int
}

// MustFreeAddr returns a loopback address on which nothing listens, and that was returned neither
// in this process nor in another one that runs now: packages are tested in parallel, and a port has
// no listener while its member is down. The port is below those that the kernel assigns to outgoing
// connections, so no connection takes it before its server starts. It panics if there is no such
// address.
func MustFreeAddr() string {
	blocks.mu.Lock()
	defer blocks.mu.Unlock()
	for range 1000 {
		if blocks.next == blocks.end && !claimBlock() {
			continue
		}
		port := blocks.next
		blocks.next++
		if l, err := listen(port); err == nil {
			_ = l.Close()
			return l.Addr().String()
		}
	}
	panic("process: no port is free")
}

// claimBlock tries to claim a block for this process. It keeps the claim to the previous block.
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

func listen(port int) (net.Listener, error) {
	return net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
}
