package logger

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// SurviveBrokenPipe makes writes to standard output or standard error fail with EPIPE if they go to
// a pipe whose reader is gone. By default, such a write ends the process with SIGPIPE, which
// systemd considers a clean exit. Child processes keep the default behavior. If the signal were
// ignored instead, they would inherit that.
func SurviveBrokenPipe() { surviveBrokenPipe() }

// Each call to signal.Notify would register another channel.
var surviveBrokenPipe = sync.OnceFunc(func() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
})
