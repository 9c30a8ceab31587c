package logger

import (
	"os"
	"os/signal"
	"syscall"
)

// SurviveBrokenPipe makes writes to a standard output or error whose reader is gone fail with
// EPIPE. By default they end the process with SIGPIPE, which systemd takes for a clean end. The
// commands that this process starts have the default: what is ignored would be inherited.
func SurviveBrokenPipe() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }
