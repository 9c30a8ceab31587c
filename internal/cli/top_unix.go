//go:build unix

package cli

import (
	"os"
	"os/signal"
	"syscall"
)

// notifyResized tells of changes of the terminal's size, until stop is called.
func notifyResized(to chan os.Signal) (stop func()) {
	signal.Notify(to, syscall.SIGWINCH)
	return func() { signal.Stop(to) }
}
