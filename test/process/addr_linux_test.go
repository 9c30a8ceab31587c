package process

import (
	"net"
	"os/exec"
	"sync"
	"testing"

	"leasehold.dev/test/tier"
)

// TestFreeAddrWhileForking checks that an address is free when it is returned, even if other
// goroutines start processes. Between fork and exec, a new process has copies of all open files.
func TestFreeAddrWhileForking(t *testing.T) {
	tier.RealTime(t)
	done := make(chan struct{})
	var forks sync.WaitGroup
	for range 4 {
		forks.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
					_ = exec.Command("/nonexistent").Run()
					_ = exec.Command("true").Run()
				}
			}
		})
	}
	for range 100 {
		addr := MustFreeAddr()
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Error(err)
			break
		}
		_ = l.Close()
	}
	close(done)
	forks.Wait()
}
