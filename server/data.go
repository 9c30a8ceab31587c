package server

import (
	"io"
	"net/url"

	"leasehold.dev/internal/backup"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/member/identity"
	"leasehold.dev/internal/version"
	"leasehold.dev/lease"
)

// ErrBackup means that a file is not a complete backup of this service.
var ErrBackup = backup.ErrNotWhole

// BackupInfo describes a backup.
type BackupInfo struct {
	// Version is the version of the format, "leasehold 1".
	Version string
	// Cluster is the ID of the cluster that was backed up. Members is the number of its members.
	Cluster uint64
	Members int
	// Restore is the ID of the restore that the cluster began with, or 0 if there was none.
	Restore uint64
	// ClusterVersion is the cluster version at the time of the backup. It is also the version of
	// the backup's records.
	ClusterVersion string
	// Revision is the newest revision. Compacted is the oldest revision that can be read, or 0 if
	// nothing has ever been compacted.
	Revision, Compacted int64
	// Keys and Leases count the live keys and leases, without history.
	Keys, Leases int
	// Bytes is the length of the backup, excluding the SHA-256.
	Bytes int64
	// Hash is the hash of the whole state. Two backups with the same hash contain the same state.
	Hash uint32
}

// BackupStatus reads an entire backup and describes it. It makes the same checks as [Restore],
// including the SHA-256 at the end. If the backup is incomplete, it returns [ErrBackup]. It needs
// as much memory as the state.
func BackupStatus(r io.Reader) (BackupInfo, error) {
	b, err := backup.NewReader(r)
	if err != nil {
		return BackupInfo{}, err
	}
	c := machineConfig(DefaultConfig())
	c.Versions.Oldest = 1 // nothing will continue from this backup
	m, err := fsm.Restore(c, b.Next)
	if err != nil {
		return BackupInfo{}, identity.BackupError(err)
	}
	if err := b.Finish(true); err != nil {
		return BackupInfo{}, err
	}
	image := m.Image()
	sum, err := image.Hash()
	if err != nil {
		return BackupInfo{}, err
	}
	return BackupInfo{
		Version: backup.Version, Cluster: b.Cluster(), Members: len(image.View.Members),
		Restore:        image.View.Restore,
		ClusterVersion: version.Name(image.View.Version.Number),
		Revision:       image.View.KV.Revision(),
		Compacted:      image.View.KV.Compacted(), Keys: image.View.KV.Len(),
		Leases: m.Lessor().Len(), Bytes: b.Size(), Hash: sum,
	}, nil
}

// ErrNotEmpty means that the directory for a restored backup is not empty.
var ErrNotEmpty = identity.ErrNotEmpty

// RestoreOptions changes how a backup is restored.
type RestoreOptions struct {
	// SkipHash accepts a backup whose SHA-256 is missing or wrong. The checksums of its chunks are
	// still checked.
	SkipHash bool
	// BumpRevision is added to the revision of the backup. It must exceed the number of revisions
	// created after the backup. If it is 0, the revision is raised above every revision that the
	// old cluster can have reported, no matter what it did after the backup (T34). History up to
	// the new revision is marked as compacted, so that old watches must start over.
	BumpRevision int64
	// KeepRevision continues with the revision and the history of the backup. Use it only if the
	// cluster created no revisions after the backup, or reported none of them to a client.
	// Otherwise, old watches wait for revisions that are used a second time.
	KeepRevision bool
	// Removed contains the IDs of former members that no longer belong to the cluster. If such a
	// member returns, it is rejected and stops instead of forming a second cluster. Such a member
	// recognizes this one by Member, which is the ID that this member keeps. If Member is 0, this
	// member gets a new ID.
	Removed []uint64
	Member  uint64
}

// Restore creates the data directory c.DataDir from a backup. The directory must be empty or not
// exist. Otherwise, the error is [ErrNotEmpty]. If the backup is incomplete, the error is
// [ErrBackup], and Restore leaves nothing behind.
//
// The member becomes the founder of a new cluster. Its IDs are derived from c, as for any member
// that starts for the first time. Keys and leases come from the backup. When the member starts to
// serve, each lease starts over with its full TTL, or with the time that remained at its last
// checkpoint. Revisions (T34) and fencing tokens (T27) continue above all values that might have
// been issued before, no matter how often the backup has been restored. This requires that the wall
// clock is not behind the clock of an earlier restore. Earlier history is compacted.
//
// The cluster keeps the ID of the backup's cluster, but gets its own restore ID, so that it cannot
// write to the previous cluster's backups ([Config.Backup]).
func Restore(r io.Reader, c Config, o RestoreOptions) error {
	if err := c.Validate(); err != nil {
		return err
	}
	return identity.Restore(r, c.identity(), identity.RestoreOptions(o))
}

// Found founds a cluster in an empty data directory. The directory then belongs to the first member
// of the cluster. Found returns the IDs of the cluster and the member. It does not start the
// member. Use it if members are configured never to found a cluster, so that a lost disk cannot
// lead to a second cluster. Found also completes a founding that was interrupted.
func Found(c Config) (cluster, member uint64, err error) {
	if err := c.Validate(); err != nil {
		return 0, 0, err
	}
	return identity.Found(c.identity())
}

// Reach checks whether a member with this configuration can join. It returns nil if at least one
// member responds at its peer URLs and belongs to the cluster. It queries all members concurrently.
// The error is ErrUnsupportedVersion if this release does not support the cluster's version.
func Reach(c Config, members map[string][]url.URL, cluster uint64) error {
	_, way, err := peerWay(c)
	if err != nil {
		return err
	}
	return identity.Reach(c.identity(), way, members, cluster)
}

// identity returns the configuration for package identity.
func (c Config) identity() identity.Config {
	return identity.Config{
		Name: c.Name, DataDir: c.DataDir, Initial: c.InitialMembers(),
		AdvertisePeer: c.URLs.AdvertisePeer, Token: c.Cluster.Token,
		Existing: c.Cluster.State == "existing",
		Files:    c.host.Files(), Logger: c.Logger, Machine: machineConfig(c),
	}
}

// machineConfig omits the minimum TTL and the maximum number of keys. Members can have different
// limits, and the result of applying an entry must not depend on them. The API checks them instead.
func machineConfig(c Config) fsm.Config {
	return fsm.Config{Versions: version.Spoken, Async: identity.Async, Lease: lease.Config{
		CheckpointInterval: lease.TTL(c.Lease.CheckpointInterval.Milliseconds()),
		Untended:           lease.TTL(c.Lease.Untended.Milliseconds()),
		SpreadRate:         c.Lease.SpreadRate,
	}}
}
