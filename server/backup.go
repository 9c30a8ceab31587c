package server

import (
	"errors"
	"fmt"
	"io"

	"leasehold.dev/internal/backup"
	"leasehold.dev/internal/fsm"
	"leasehold.dev/internal/version"
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
	// Restore is the ID of the restore that the cluster began with, 0 if it began with none.
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

// BackupStatus reads a backup to its end and tells what it has. It makes the same checks as
// [Restore], also of the SHA-256 at the end, and returns [ErrBackup] if the backup is not
// complete. It takes as much memory as the state.
func BackupStatus(r io.Reader) (BackupInfo, error) {
	b, err := backup.NewReader(r)
	if err != nil {
		return BackupInfo{}, err
	}
	c := machineConfig(DefaultConfig())
	c.Versions.Oldest = 1 // nobody goes on with it
	m, err := fsm.Restore(c, b.Next)
	if err != nil {
		return BackupInfo{}, asBackupError(err)
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

// asBackupError says of what is in no state's encoding that it is no backup.
func asBackupError(err error) error {
	if errors.Is(err, fsm.ErrCorrupt) {
		return fmt.Errorf("%w: %w", ErrBackup, err)
	}
	return err
}
