//go:build unix

package rewind

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// chownLike gives a directory and its contents the same owner as another directory. Repairs usually
// run as root, but members seldom do.
func chownLike(dir, like string) error {
	info, err := os.Stat(like)
	if err != nil {
		return err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(owner.Uid) == os.Geteuid() {
		return nil
	}
	return filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, int(owner.Uid), int(owner.Gid))
	})
}
