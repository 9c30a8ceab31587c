package process

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// blockSize is how many ports a block has, the first of which is for the block itself.
const blockSize = 100

// blocks are ports that are this process's alone for as long as it lives.
var blocks struct {
	mu     sync.Mutex
	claims []net.Listener // on the first port of each: they keep other processes away
	next   int            // port
	end    int
}

// MustFreeAddr returns an address on loopback that nobody listens on, and that neither
// this process nor another that runs meanwhile has been given: packages are tested at the
// same time, and a port has no listener while its member is down. The port is below those
// that the kernel gives to outgoing connections, so that none takes it before its server
// starts. It panics if there is none.
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

// claimBlock tries to make a block this process's. The claim of the block before stays.
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
