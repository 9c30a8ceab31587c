package server

import (
	"testing"

	"golang.org/x/sys/unix"
)

// usage is what this process has used. Its CPU time says more than the time of the clock where
// others work.
func usage(b *testing.B) (u unix.Rusage) {
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u
}
