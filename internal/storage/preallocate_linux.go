package storage

import "golang.org/x/sys/unix"

// extend reserves space for a file and makes it part of the file's size. What
// was not written reads as zeros, which Pebble takes for the end of its log.
func extend(fd uintptr, offset, length int64) error {
	return unix.Fallocate(int(fd), 0, offset, length)
}
