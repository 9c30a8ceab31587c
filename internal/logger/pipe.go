package logger

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// SurviveBrokenPipe makes writes to a standard output or error whose reader is gone fail with
// EPIPE. By default they end the process with SIGPIPE, which systemd takes for a clean end. The
// commands that this process starts have the default: what is ignored would be inherited.
func SurviveBrokenPipe() { surviveBrokenPipe() }

// Each call of signal.Notify registers one more channel.
var surviveBrokenPipe = sync.OnceFunc(func() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
})
