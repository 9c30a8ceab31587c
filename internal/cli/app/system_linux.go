package app

import "golang.org/x/sys/unix"

// getTermios and setTermios read and set what a terminal does.
const (
	getTermios = unix.TCGETS
	setTermios = unix.TCSETS
)
