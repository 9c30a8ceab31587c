package identity

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"leasehold.dev/internal/backup"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/storage"
	"leasehold.dev/lease"
)

// ErrNotEmpty means that the directory for a restored backup is not empty.
var ErrNotEmpty = errors.New("server: the data directory is not empty")

// RestoreOptions are the options of the same name in package server.
type RestoreOptions struct {
	SkipHash     bool
	BumpRevision int64
	KeepRevision bool
	Removed      []uint64
	Member       uint64
}

// revisions determines the revision after a backup is restored.
func (o *RestoreOptions) revisions(f *fsm.Restoration, now time.Time) error {
	f.BumpRevision, f.MarkCompacted = o.BumpRevision, !o.KeepRevision
	switch {
	case o.KeepRevision && o.BumpRevision != 0:
		return fmt.Errorf("%w: a restore cannot both keep and raise the revision", ErrConfig)
	case !o.KeepRevision && o.BumpRevision == 0:
		f.BumpRevision, f.MinRevision = defaultBump, revisionAt(now)
	}
	return nil
}

// defaultBump is the minimum amount by which a restore raises the revision.
const defaultBump = 1_000_000_000

// revisionAt returns a revision that no cluster can have reached by time t, if the cluster began
// with revision 1 or with a result of revisionAt. It is the number of microseconds since 1970,
// because no cluster averages a million revisions per second over its lifetime. A fixed number
// would not suffice: a second restore of the same backup would begin with the same revisions as the
// first. Until the year 2255, the result is below 1<<53. Above that, programs that store numbers as
// floating point lose digits.
func revisionAt(t time.Time) int64 { return max(t.UnixMicro(), 0) }

// Restore creates the data directory c.DataDir from a backup. The directory must be empty or must
// not exist. Otherwise, the error is [ErrNotEmpty]. If the backup is incomplete, the error is
// [backup.ErrNotWhole], and Restore leaves nothing behind.
//
// The member becomes the founder of a new cluster. Its IDs are derived from c, as for any member
// that starts for the first time. Keys and leases come from the backup. When the member starts to
// serve, each lease starts over with its full TTL, or with the time that remained at its last
// checkpoint. Revisions (T34) and fencing tokens (T27) continue above all values that might have
// been issued before, no matter how often the backup has been restored. This requires that the wall
// clock is not behind the clock of an earlier restore. Earlier history is compacted.
//
// The cluster keeps the ID of the backup's cluster, but gets its own restore ID, so that it cannot
// write to the previous cluster's backups (server.Config.Backup).
func Restore(r io.Reader, c Config, o RestoreOptions) error {
	if err := c.CheckBootstrap(); err != nil {
		return err
	}
	members := founders(c)
	if len(members) > 1 {
		return fmt.Errorf("%w: %d members in --initial-cluster, but a backup is restored into one "+
			"member, because no two restores may share fencing tokens; omit --initial-cluster, "+
			"start that member, and let the others join it with --join", ErrConfig, len(members))
	}
	existed, err := checkEmpty(c.DataDir)
	if err != nil {
		return err
	}
	members[0].ID = cmp.Or(o.Member, members[0].ID)
	now := time.Now()
	f := fsm.Restoration{
		ID: restoreID(), Members: members, Removed: o.Removed, Above: tokenAt(now),
	}
	if err := o.revisions(&f, now); err != nil {
		return err
	}
	m, cluster, err := readBackup(r, c, o, f)
	if err != nil {
		return err
	}
	id := storage.Identity{
		Cluster: cluster, Member: members[0].ID, Generation: m.Lessor().View().State().Generation,
	}
	if err := writeRestored(m, c, id); err != nil {
		err = fmt.Errorf("restore into %q: %w", c.DataDir, err)
		return errors.Join(err, undo(c.DataDir, existed))
	}
	return nil
}

// restoreID returns a unique ID.
func restoreID() uint64 { return max(rand.Uint64(), 1) }

// tokenAt returns a token that no cluster can have reached by time t, if the cluster began with
// token 1 or with a result of tokenAt. The generation is the day. The counter begins with the
// millisecond of the day, and leaves room for a million grants per millisecond. So two restores of
// the same backup issue different tokens. A count of restores would not ensure that, because both
// restores would get the same number.
func tokenAt(t time.Time) lease.Token {
	const day = 24 * 60 * 60 * 1000
	ms := max(t.UnixMilli(), 0)
	return lease.Token(min(ms/day, 1<<16-1)<<48 | ms%day<<20)
}

// checkEmpty returns an error if a directory is not empty, or if there is a file in its place.
func checkEmpty(dir string) (existed bool, err error) {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	}
	for _, e := range entries {
		if e.Name() == storage.Restoring {
			return true, fmt.Errorf("%w: %s", storage.ErrHalfRestored, dir)
		}
	}
	if len(entries) > 0 {
		return true, fmt.Errorf("%w: %s", ErrNotEmpty, dir)
	}
	return true, nil
}

// readBackup reads and checks a whole backup before anything is written. It returns the state, and
// the ID of the cluster that wrote the backup.
func readBackup(
	r io.Reader, c Config, o RestoreOptions, f fsm.Restoration,
) (*fsm.Machine, uint64, error) {
	b, err := backup.NewReader(r)
	if err != nil {
		return nil, 0, err
	}
	m, err := fsm.RestoreBackup(c.Machine, f, b.Next)
	if err != nil {
		return nil, 0, BackupError(err)
	}
	return m, b.Cluster(), b.Finish(!o.SkipHash)
}

// writeRestored writes m as the first state of a new cluster, or of a cluster that continues under
// its old ID.
func writeRestored(m *fsm.Machine, c Config, id storage.Identity) (err error) {
	if err := os.MkdirAll(c.DataDir, 0o700); err != nil {
		return err
	}
	if err := leaveNote(c.DataDir, storage.Restoring, ""); err != nil {
		return err
	}
	// The directory itself might be new as well, and its name must survive a crash.
	if err := syncDir(filepath.Dir(c.DataDir)); err != nil {
		return err
	}
	disk, err := storage.Open(storage.Config{Dir: c.DataDir, Logger: c.Logger})
	if err != nil {
		return err
	}
	if err := errors.Join(fillRestored(disk, m, c, id), disk.Close()); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(c.DataDir, storage.Restoring)); err != nil {
		return err
	}
	return syncDir(c.DataDir)
}

func fillRestored(disk *storage.Disk, m *fsm.Machine, c Config, id storage.Identity) error {
	members := founders(c)
	members[0].ID = id.Member
	if err := identify(disk, c, members, id); err != nil {
		return err
	}
	if err := disk.SavePeers(storage.Peers{Assembled: len(members) == 1}); err != nil {
		return err
	}
	// Term and index continue from the backup's values, because clients see both in each response.
	// Committing the snapshot also sets the hard state to these values.
	image := m.Image()
	return WriteSnapshot(disk, image, confState(members), 0)
}

// undo removes what a failed restore has created.
func undo(dir string, existed bool) error {
	if !existed {
		return os.RemoveAll(dir)
	}
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return err
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// refuseUnusable prevents a member from starting with what an interrupted restore left behind, or
// with a state that is older than its previous one.
func refuseUnusable(dir string) error {
	err := storage.Unusable(dir)
	if err == nil {
		return nil
	}
	err = fmt.Errorf("server: %w", err)
	if errors.Is(err, storage.ErrRolledBack) {
		return damaged{err}
	}
	return err
}

// BackupError returns the error for a backup whose state cannot be decoded.
func BackupError(err error) error {
	if errors.Is(err, fsm.ErrCorrupt) {
		return fmt.Errorf("%w: %w", backup.ErrNotWhole, err)
	}
	return err
}
