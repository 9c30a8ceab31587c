//go:build linux || darwin

package app

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// silence turns off a terminal's echo until restore is called or the user interrupts. It does
// nothing if f is not a terminal.
func silence(f *os.File) (restore func()) {
	fd := int(f.Fd())
	before, err := unix.IoctlGetTermios(fd, getTermios)
	if err != nil {
		return func() {}
	}
	quiet := *before
	quiet.Lflag &^= unix.ECHO
	if unix.IoctlSetTermios(fd, setTermios, &quiet) != nil {
		return func() {}
	}
	interrupted, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(interrupted, os.Interrupt, unix.SIGTERM, unix.SIGHUP)
	go func() {
		select {
		case <-interrupted:
			_ = unix.IoctlSetTermios(fd, setTermios, before)
			os.Exit(ExitFailure)
		case <-done:
		}
	}()
	return func() {
		signal.Stop(interrupted)
		close(done)
		_ = unix.IoctlSetTermios(fd, setTermios, before)
	}
}
