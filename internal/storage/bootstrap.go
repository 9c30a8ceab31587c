package storage

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"syscall"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

func (d *Disk) loadIdentity() error {
	f, err := d.fs.Open(d.identityPath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	b, err := readAll(f)
	if err == nil {
		d.identity, d.conf, err = decodeIdentity(b)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", d.identityPath(), err)
	}
	d.bootstrapped = true
	return nil
}

// readAll reads a file and closes it.
func readAll(f File) ([]byte, error) {
	size, err := f.Size()
	b := make([]byte, size)
	if err == nil && size > 0 {
		_, err = f.ReadAt(b, 0)
		if errors.Is(err, io.EOF) {
			err = nil
		}
	}
	return b, errors.Join(err, f.Close())
}

// lostIdentity returns an error if a directory without an identity had one. What a Bootstrap leaves
// that did not come to its end is a segment without a commit.
func (d *Disk) lostIdentity(inv *inventory) error {
	found := ""
	if len(inv.snapshots) > 0 {
		found = inv.snapshots[0]
	}
	for _, number := range inv.segments {
		s, err := d.readSegment(number, func(frame, record) error { return nil })
		if err != nil {
			return fmt.Errorf("%s is missing: %w", d.identityPath(), err)
		}
		if number != 1 || s.commit > 0 {
			found = segmentName(number)
		}
	}
	if found != "" {
		return fmt.Errorf("%w: %s is missing, but there is %s",
			ErrCorrupt, d.identityPath(), d.path(found))
	}
	return nil
}

// clear prepares a directory without an identity for Bootstrap.
func (d *Disk) clear(inv *inventory) error {
	if err := d.lostIdentity(inv); err != nil {
		return err
	}
	names := append(inv.temporary, inv.spares...)
	for _, number := range inv.segments {
		names = append(names, segmentName(number))
	}
	for _, name := range names {
		if err := d.fs.Remove(d.path(name)); err != nil {
			return err
		}
	}
	return d.fs.SyncDir(d.path(""))
}

// Bootstrap makes an empty directory a member's, durably. conf is the membership
// the log starts from at index 0; nil or empty for a member that joins a cluster
// and gets its membership with a snapshot. It fails if the directory
// has an identity already.
//
// A log that starts from a membership at index 0 does not contain it. So a member
// that joins later cannot be fed from entry 1: compact the log, and thereby make
// Raft send it a snapshot, before the first member is added.
func (d *Disk) Bootstrap(id Identity, conf *raftpb.ConfState) error {
	d.write.Lock()
	defer d.write.Unlock()
	switch {
	case d.closed:
		return errClosed
	case d.failure != nil:
		return d.failure
	case d.bootstrapped:
		return errBootstrapped
	}
	if err := d.bootstrap(id, conf); err != nil {
		return fmt.Errorf("bootstrap: %w", classify(err))
	}
	return nil
}

// bootstrap makes the first segment, then the identity, then the first commit. Without an identity,
// and with that commit, the identity was lost; see clear.
func (d *Disk) bootstrap(id Identity, conf *raftpb.ConfState) error {
	content, err := encodeIdentity(id, conf)
	if err != nil {
		return err
	}
	// MkdirAll syncs the parents of what it makes, but the directory may have been there. The parent
	// of a mount point can be unreadable, or on a file system that syncs no directories.
	err = d.fs.SyncDir(filepath.Join(d.cfg.Dir, ".."))
	if err != nil && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, syscall.EINVAL) {
		return err
	}
	name, err := d.spares.large(d.cfg.SegmentBytes)
	if err != nil {
		return err
	}
	head := appendHead(nil, segmentHead{number: 1, size: d.cfg.SegmentBytes, owner: id})
	w, err := d.begin(name, writer{number: 1, size: d.cfg.SegmentBytes}, head)
	if err != nil {
		return err
	}
	if err := d.writeIdentity(content); err != nil {
		return errors.Join(err, w.file.Close())
	}
	d.writer = w
	d.mu.Lock()
	d.identity, d.bootstrapped, d.conf = id, true, proto.CloneOf(conf)
	d.segments = []segment{{1, d.size}}
	d.mu.Unlock()
	d.spares.start(nil, nil)
	return d.commit(forState, nil)
}

func (d *Disk) writeIdentity(content []byte) error {
	name := d.identityPath()
	f, err := d.fs.Create(name+tempSuffix, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(content, 0)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := d.fs.Rename(name+tempSuffix, name); err != nil {
		return err
	}
	if err := d.fs.SyncDir(d.cfg.Dir); err != nil {
		return d.fail(err)
	}
	return nil
}
