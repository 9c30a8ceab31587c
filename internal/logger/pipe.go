package logger

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// SurviveBrokenPipe makes writes to a standard output or error without a reader fail with EPIPE. By
// default they end the process with SIGPIPE, which systemd considers a clean exit. Child processes
// keep the default, because an ignored signal would be inherited.
func SurviveBrokenPipe() { surviveBrokenPipe() }

// Each call of signal.Notify would register another channel.
var surviveBrokenPipe = sync.OnceFunc(func() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
})
