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
	// Version is the format's, "leasehold 1".
	Version string
	// Cluster is the ID of the backup's cluster, and Members its number of members.
	Cluster uint64
	Members int
	// Restore is the ID of the restore that the cluster began with, 0 if none.
	Restore uint64
	// ClusterVersion is the cluster version at the time of the backup, and so the version of its
	// records.
	ClusterVersion string
	// Revision is the newest revision, Compacted the oldest one that can be read; 0 if nothing
	// was ever compacted.
	Revision, Compacted int64
	// Keys and Leases count the live keys and leases, without history.
	Keys, Leases int
	// Bytes is the length of the backup without the SHA-256.
	Bytes int64
	// Hash is the hash of the whole state. Two backups with the same hash have the same state.
	Hash uint32
}

// BackupStatus reads a backup to its end and describes it. It makes the same checks as [Restore],
// including the SHA-256 at the end, and returns [ErrBackup] if the backup is not complete. It uses
// as much memory as the state.
func BackupStatus(r io.Reader) (BackupInfo, error) {
	b, err := backup.NewReader(r)
	if err != nil {
		return BackupInfo{}, err
	}
	c := machineConfig(DefaultConfig())
	c.Versions.Oldest = 1 // nothing continues from it
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

// ErrNotEmpty means that the directory to restore a backup to is not empty.
var ErrNotEmpty = identity.ErrNotEmpty

// RestoreOptions change how a backup is restored.
type RestoreOptions struct {
	// SkipHash accepts a backup whose SHA-256 is missing or wrong. The checksums of its chunks
	// are checked anyway.
	SkipHash bool
	// BumpRevision is added to the revision of the backup. It must exceed the number of revisions
	// after the backup. 0 raises the revision above every revision that the old cluster can have
	// reported, regardless of what it did after the backup (T34). History up to the new revision is
	// marked as compacted, so that older watches must start over.
	BumpRevision int64
	// KeepRevision continues with the revision and the history of the backup. Use it only if the
	// cluster made no revision after the backup, or reported none to a client: otherwise older
	// watches wait for revisions that are used a second time.
	KeepRevision bool
	// Removed are the IDs of earlier members that no longer belong to the cluster. If such a member
	// returns, it is rejected and stops, instead of forming a second cluster. It recognizes this
	// member by Member, the ID that this member keeps; 0 for a new ID.
	Removed []uint64
	Member  uint64
}

// Restore creates the data directory c.DataDir from a backup. The directory must be empty or not
// exist, otherwise the error is [ErrNotEmpty]. If the backup is not complete the error is
// [ErrBackup], and Restore leaves nothing behind.
//
// The member is the founder of a new cluster, with IDs derived from c as at any first start. Keys
// and leases are those of the backup. When the member starts to serve, each lease starts over with
// its full TTL, or with the time that remained at its last checkpoint. Revisions (T34) and fencing
// tokens (T27) continue above all that may have been issued before, however often the backup was
// restored, unless the wall clock is behind that of earlier restores. Earlier history is compacted.
//
// The cluster keeps the ID of the backup's cluster, and gets its own restore ID, so that it
// cannot write to the previous cluster's backups ([Config.Backup]).
func Restore(r io.Reader, c Config, o RestoreOptions) error {
	if err := c.Validate(); err != nil {
		return err
	}
	return identity.Restore(r, c.identity(), identity.RestoreOptions(o))
}

// Found founds a cluster in an empty data directory, which becomes that of its first member, and
// returns the IDs of the cluster and the member. It does not start the member. Use it if members
// are configured never to found a cluster, so that a lost disk cannot create a second one. Found
// also completes an interrupted founding.
func Found(c Config) (cluster, member uint64, err error) {
	if err := c.Validate(); err != nil {
		return 0, 0, err
	}
	return identity.Found(c.identity())
}

// Reach returns nil if at least one of the members answers at its peer URLs and belongs to the
// cluster, so that a member with this configuration can join. It asks all members at once. The
// error is ErrForeign if this release does not support the cluster's version.
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

// machineConfig leaves out the minimum TTL and the maximum number of keys: members may have
// different limits, and apply must not depend on them. The API checks them.
func machineConfig(c Config) fsm.Config {
	return fsm.Config{Versions: version.Spoken, Beside: identity.Beside, Lease: lease.Config{
		CheckpointInterval: lease.TTL(c.Lease.CheckpointInterval.Milliseconds()),
		Untended:           lease.TTL(c.Lease.Untended.Milliseconds()),
		SpreadRate:         c.Lease.SpreadRate,
	}}
}
