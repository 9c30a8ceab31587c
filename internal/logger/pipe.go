package logger

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// SurviveBrokenPipe makes writes to standard output or standard error fail with EPIPE if they have
// no reader. By default, such a write ends the process with SIGPIPE, which systemd considers a
// clean exit. Child processes keep the default behavior. They would not if the signal were ignored,
// because an ignored signal is inherited.
func SurviveBrokenPipe() { surviveBrokenPipe() }

// Every call of signal.Notify would register another channel.
var surviveBrokenPipe = sync.OnceFunc(func() {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
})
