package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"syscall"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

func (d *Disk) identityPath() string { return filepath.Join(d.cfg.Dir, identityFile) }

// loadIdentity reads the identity file, which contains the member's identity and the initial
// members of its log. The file consists of a single frame like those in a segment, with segment
// number 0.
func (d *Disk) loadIdentity() error {
	m := image{name: d.identityPath()}
	f, err := d.fs.Open(m.name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer ignoreClose(f)
	size, err := f.Size()
	if err == nil {
		m.b, err = readFrom(f, size)
	}
	if err != nil {
		return err
	}
	c := cursor{}
	content, whole, err := m.next(&c)
	if err == nil && !whole {
		err = m.damage(0, "the data differs from what was written")
	}
	if err != nil {
		return err
	}
	if err := records(content.payload, func(r record) (err error) {
		d.identity, d.conf, err = r.identity()
		return err
	}); err != nil {
		return fmt.Errorf("%s: %w", m.name, err)
	}
	d.bootstrapped = true
	return nil
}

// lostIdentity returns an error if a directory has lost its identity. Segments left by an
// interrupted Bootstrap do not count, because they contain only zeros.
func (d *Disk) lostIdentity(inv *inventory) error {
	found := slices.Clone(inv.snapshots)
	for _, number := range inv.segments {
		s, err := d.openSegment(number)
		if err != nil {
			return fmt.Errorf("%s is missing: %w", d.identityPath(), err)
		}
		ignoreClose(s.file)
		if s.image.has(own) || s.image.has(old) || s.image.has(damaged) {
			found = append(found, segmentName(number))
		}
	}
	if len(found) > 0 {
		return fmt.Errorf("%w: %s is missing, but %s exists",
			ErrCorrupt, d.identityPath(), d.path(found[0]))
	}
	return nil
}

// clear prepares a directory without an identity for Bootstrap.
func (d *Disk) clear(inv *inventory) error {
	if err := d.lostIdentity(inv); err != nil {
		return err
	}
	names := inv.temporary
	for _, number := range inv.segments {
		names = append(names, segmentName(number))
	}
	for _, name := range names {
		if err := d.fs.Remove(d.path(name)); err != nil {
			return err
		}
	}
	return d.dir.Sync()
}

// Bootstrap durably turns an empty directory into a member's data directory. conf is the membership
// at index 0, where the log starts. It is nil or empty if the member joins a cluster and receives
// its membership in a snapshot. Bootstrap fails if the directory already has an identity.
//
// A log that starts from a membership at index 0 does not contain that membership. So the log
// cannot be sent, from entry 1, to a member that joins later. To allow that, begin with a snapshot,
// which Raft then sends to the new member.
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

// bootstrap writes the first segment, then the identity, then the first commit. If that commit
// exists without an identity, the identity was lost; see clear.
func (d *Disk) bootstrap(id Identity, conf *raftpb.ConfState) error {
	// Any parent directory may be new. A parent that is not new may be unreadable, or on a file
	// system that cannot sync directories.
	for dir := filepath.Clean(d.cfg.Dir); dir != filepath.Dir(dir); {
		dir = filepath.Dir(dir)
		err := syncDir(d.fs, dir)
		if err != nil && !errors.Is(err, fs.ErrPermission) && !errors.Is(err, syscall.EINVAL) {
			return err
		}
	}
	if len(d.segments) == 0 {
		first, err := d.spares.take()
		if err != nil {
			return err
		}
		d.use(first)
	}
	if err := d.writeIdentity(id, conf); err != nil {
		return err
	}
	d.mu.Lock()
	d.identity, d.bootstrapped, d.conf = id, true, proto.CloneOf(conf)
	d.mu.Unlock()
	return d.commit(forState, nil, func(*frame) {})
}

func (d *Disk) writeIdentity(id Identity, conf *raftpb.ConfState) error {
	name := d.identityPath()
	f, err := d.fs.Create(name+tempSuffix, 0)
	if err != nil {
		return err
	}
	content := (&cursor{}).frame(appendIdentity(nil, id, conf))
	_, err = f.WriteAt(content.appendTo(nil, 0), 0)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := d.fs.Rename(name+tempSuffix, name); err != nil {
		return err
	}
	if err := syncDir(d.fs, d.cfg.Dir); err != nil {
		return d.fail(err)
	}
	return nil
}
