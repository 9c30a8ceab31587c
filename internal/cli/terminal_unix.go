//go:build linux || darwin

package cli

import (
	"os"

	"golang.org/x/sys/unix"
)

// columns is the width of a terminal; ok is false for what is none.
func columns(f *os.File) (n int, ok bool) {
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, false
	}
	return int(size.Col), true
}
