package storage

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// Disk is one member's storage.
type Disk struct{}

var _ raft.Storage = (*Disk)(nil)

// Open opens the data directory.
func Open(cfg Config) (*Disk, error) { panic("not yet") }

// Identity returns the member's identity, and false before Bootstrap.
func (d *Disk) Identity() (Identity, bool) { panic("not yet") }

// Bootstrap makes an empty directory a member's.
func (d *Disk) Bootstrap(id Identity, conf *raftpb.ConfState) error { panic("not yet") }

// InitialState implements raft.Storage.
func (d *Disk) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) { panic("not yet") }

// Entries implements raft.Storage.
func (d *Disk) Entries(lo, hi, maxSize uint64) ([]*raftpb.Entry, error) { panic("not yet") }

// Term implements raft.Storage.
func (d *Disk) Term(i uint64) (uint64, error) { panic("not yet") }

// LastIndex implements raft.Storage.
func (d *Disk) LastIndex() (uint64, error) { panic("not yet") }

// FirstIndex implements raft.Storage.
func (d *Disk) FirstIndex() (uint64, error) { panic("not yet") }

// Snapshot implements raft.Storage; Data is empty.
func (d *Disk) Snapshot() (*raftpb.Snapshot, error) { panic("not yet") }

// Append writes entries and hard state.
func (d *Disk) Append(entries []*raftpb.Entry, hs *raftpb.HardState, sync bool) error {
	panic("not yet")
}

// Compact drops the log up to and including index.
func (d *Disk) Compact(index uint64) error { panic("not yet") }

// Usage returns what the Disk uses.
func (d *Disk) Usage() Usage { panic("not yet") }

// Flush makes everything appended so far durable.
func (d *Disk) Flush() error { panic("not yet") }

// Checkpoint writes a copy of the database into dir, which must not exist.
func (d *Disk) Checkpoint(dir string) error { panic("not yet") }

// Close closes the Disk.
func (d *Disk) Close() error { panic("not yet") }

// SnapshotWriter writes one snapshot.
type SnapshotWriter struct{}

// NewSnapshot starts a snapshot.
func (d *Disk) NewSnapshot(meta SnapshotMeta) (*SnapshotWriter, error) { panic("not yet") }

// Write appends one chunk.
func (w *SnapshotWriter) Write(chunk []byte) error { panic("not yet") }

// Commit makes the snapshot the newest one, atomically and durably.
func (w *SnapshotWriter) Commit() error { panic("not yet") }

// Abort drops the snapshot. After Commit it does nothing.
func (w *SnapshotWriter) Abort() { panic("not yet") }

// SnapshotReader reads the newest snapshot.
type SnapshotReader struct{}

// OpenSnapshot opens the newest snapshot, or returns ErrNoSnapshot.
func (d *Disk) OpenSnapshot() (*SnapshotReader, error) { panic("not yet") }

// Meta returns the snapshot's position and size.
func (r *SnapshotReader) Meta() SnapshotInfo { panic("not yet") }

// Next returns the next chunk, valid until the next call, or io.EOF.
func (r *SnapshotReader) Next() ([]byte, error) { panic("not yet") }

// Close releases the snapshot.
func (r *SnapshotReader) Close() error { panic("not yet") }
