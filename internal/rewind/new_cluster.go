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

// before is what stands between the name of a directory that was moved away, and the time.
const keptInfix = ".before-recovery-"

// Kept returns the directory that was moved away last from the place of this one; empty if there
// is none.
func (d *Directory) Kept() string {
	return newest(filepath.Dir(d.Path), filepath.Base(d.Path)+keptInfix, "")
}

// newest returns the last of the files in a directory whose names begin and end so; empty if there
// is none.
func newest(dir, begin, end string) (path string) {
	names, _ := os.ReadDir(dir) // in the order of names; without one there is none
	for _, n := range names {
		if strings.HasPrefix(n.Name(), begin) && strings.HasSuffix(n.Name(), end) {
			path = filepath.Join(dir, n.Name())
		}
	}
	return path
}

// MoveAway renames the directory, so that nothing of it is lost, and returns its new name, which
// says when that was.
func (d *Directory) MoveAway(now time.Time) (string, error) {
	name := d.Path + keptInfix + now.UTC().Format("20060102T150405Z")
	if _, err := os.Lstat(name); err == nil {
		return "", fmt.Errorf("%s is there already", name)
	}
	if err := os.Rename(d.Path, name); err != nil {
		return "", fmt.Errorf("%w; if %s is a mount point or not yours to rename, move what is in "+
			"it away by hand, keep it, and call recover again", err, d.Path)
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

// ForceNewCluster makes of a sound directory that of the first and only member of a new cluster,
// with the whole state, as [server.Restore] does of a backup. The directory of before stays, under
// the name that is returned. The other members of before are told that they were removed.
func (d *Directory) ForceNewCluster(now time.Time) (kept string, err error) {
	if d.Condition != Sound {
		return "", fmt.Errorf("%s is not sound: %w", d.Path, d.Why)
	}
	c, o := server.DefaultConfig(), server.RestoreOptions{Member: d.Member}
	c.DataDir, c.Name = d.Path, d.Name
	o.Removed = slices.Clone(d.machine.View().Removed) // they may come back, too
	gone := len(o.Removed)
	for _, m := range d.Members {
		if m.ID != d.Member {
			o.Removed = append(o.Removed, m.ID)
			continue
		}
		c.URLs.AdvertisePeer, err = listen.ParseURLs(strings.Join(m.PeerURLs, ","))
		if err != nil {
			return "", fmt.Errorf("its peer URLs: %w", err)
		}
	}
	if len(o.Removed)-gone == len(d.Members) {
		return "", fmt.Errorf("%s: its state does not name member %x: it was removed", d.Path, d.Member)
	}
	if kept, err = d.MoveAway(now); err != nil {
		return "", err
	}
	for d.machine.Scrub(1 << 20) { // what no revision needs any more
	}
	err = create(c, o, func(w io.Writer) error {
		return backup.Write(context.Background(), w, d.Cluster, d.machine.Image().Encode)
	}, func() {})
	if err != nil {
		return "", errors.Join(fmt.Errorf("make the new directory: %w", err), os.Rename(kept, d.Path))
	}
	if err := chownLike(d.Path, kept); err != nil {
		return kept, fmt.Errorf("the new directory exists, and the old one is now %s; but change "+
			"the owner of the new one yourself: %w", kept, err)
	}
	return kept, nil
}
