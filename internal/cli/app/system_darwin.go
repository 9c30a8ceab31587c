package app

import "golang.org/x/sys/unix"

// getTermios and setTermios get and set the mode of a terminal.
const (
	getTermios = unix.TIOCGETA
	setTermios = unix.TIOCSETA
)
