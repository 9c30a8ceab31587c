//go:build unix

package rewind

import (
	"os"
	"syscall"
)

// ownerOf returns the user and group of a file.
func ownerOf(info os.FileInfo) any {
	s := info.Sys().(*syscall.Stat_t)
	return [2]uint32{s.Uid, s.Gid}
}
