package rewind

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"leasehold.dev/internal/backup"
	"leasehold.dev/internal/listen"
	"leasehold.dev/server"
)

// keptInfix separates the name of a kept directory from its timestamp.
const keptInfix = ".before-recovery-"

// Kept returns the directory that was most recently moved away from this path, or "" if there is
// none.
func (d *Directory) Kept() string {
	return newest(filepath.Dir(d.Path), filepath.Base(d.Path)+keptInfix, "")
}

// newest returns the last of the files in a directory that have the given prefix and suffix. It
// returns "" if there are none.
func newest(dir, begin, end string) (path string) {
	names, _ := os.ReadDir(dir) // sorted by name; nil on error
	for _, n := range names {
		if strings.HasPrefix(n.Name(), begin) && strings.HasSuffix(n.Name(), end) {
			path = filepath.Join(dir, n.Name())
		}
	}
	return path
}

// MoveAway renames the directory, so that nothing is lost. It returns the new name, which contains
// the time.
func (d *Directory) MoveAway(now time.Time) (string, error) {
	name := d.Path + keptInfix + now.UTC().Format("20060102T150405Z")
	if _, err := os.Lstat(name); err == nil {
		return "", fmt.Errorf("%s already exists", name)
	}
	if err := os.Rename(d.Path, name); err != nil {
		return "", fmt.Errorf("%w; if %s is a mount point or you lack permission to rename it, "+
			"move its contents away by hand, keep them, and run recover again", err, d.Path)
	}
	return name, syncParent(d.Path)
}

func syncParent(path string) error {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// ForceNewCluster turns a sound directory into the directory of the first and only member of a new
// cluster. The new cluster has the entire state, as if it had been restored from a backup with
// [server.Restore]. The old directory is kept under the returned name. The other members are
// recorded as removed.
func (d *Directory) ForceNewCluster(now time.Time) (kept string, err error) {
	if d.Condition != Sound {
		return "", fmt.Errorf("%s is not usable: %w", d.Path, d.Why)
	}
	c, o := server.DefaultConfig(), server.RestoreOptions{Member: d.Member}
	c.DataDir, c.Name = d.Path, d.Name
	// previously removed members may come back as well
	o.Removed = slices.Clone(d.machine.View().Removed)
	gone := len(o.Removed)
	for _, m := range d.Members {
		if m.ID != d.Member {
			o.Removed = append(o.Removed, m.ID)
			continue
		}
		c.URLs.AdvertisePeer, err = listen.ParseURLs(strings.Join(m.PeerURLs, ","))
		if err != nil {
			return "", fmt.Errorf("peer URLs: %w", err)
		}
	}
	if len(o.Removed)-gone == len(d.Members) {
		return "", fmt.Errorf("%s: its state does not list member %x: it was removed",
			d.Path, d.Member)
	}
	if kept, err = d.MoveAway(now); err != nil {
		return "", err
	}
	for d.machine.Scrub(1 << 20) { // remove data that no revision needs
	}
	err = create(c, o, func(w io.Writer) error {
		return backup.Write(context.Background(), w, d.Cluster, d.machine.Image().Encode)
	}, func() {})
	if err != nil {
		return "", errors.Join(fmt.Errorf("create the new directory: %w", err), os.Rename(kept, d.Path))
	}
	if err := chownLike(d.Path, kept); err != nil {
		return kept, fmt.Errorf("the new directory was created and the old one renamed to %s, but the "+
			"owner of the new one could not be set; change it by hand: %w", kept, err)
	}
	return kept, nil
}
