package process

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// given are the addresses that this process has handed out.
var given sync.Map

// MustFreeAddr returns an address on loopback that nobody listens on, and that it
// has not returned before. Its port is below those that the kernel gives to
// outgoing connections, so that none takes it before its server starts. It panics
// if there is none.
func MustFreeAddr() string {
	for range 1000 {
		addr := fmt.Sprintf("127.0.0.1:%d", 10_000+rand.IntN(20_000))
		if _, taken := given.LoadOrStore(addr, true); taken {
			continue
		}
		if l, err := net.Listen("tcp", addr); err == nil {
			_ = l.Close()
			return addr
		}
	}
	panic("process: no port is free")
}
