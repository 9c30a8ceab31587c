package app

import "golang.org/x/sys/unix"

// getTermios and setTermios read and Set what a terminal does.
const (
	getTermios = unix.TIOCGETA
	setTermios = unix.TIOCSETA
)
