//go:build !linux && !darwin

package cli

import "os"

// columns is the width of a terminal, 0 where it is not known; ok is false for
// what is none.
func columns(f *os.File) (n int, ok bool) {
	info, err := f.Stat()
	return 0, err == nil && info.Mode()&os.ModeCharDevice != 0
}
