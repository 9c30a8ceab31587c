package storage

import (
	"errors"

	"go.etcd.io/raft/v3/raftpb"
)

// Inline returns a configuration with a deterministic order of system calls.
func Inline(c Config) Config {
	c.inline = true
	return c
}

// AddEmpty appends an empty commit by calling Settle twice.
func (d *Disk) AddEmpty() error { return errors.Join(d.Settle(), d.Settle()) }

// Check reads a directory like Open, without changing it.
func Check(cfg Config) (*Disk, error) {
	d, err := newDisk(cfg)
	if err != nil {
		return nil, err
	}
	d.fs = readOnly{d.fs}
	inv, err := d.inventory()
	if err == nil {
		err = d.loadIdentity()
	}
	if err == nil && d.bootstrapped {
		_, err = d.loadAll(inv.segments)
	}
	return d, err
}

func entry(index, term uint64, data string) *raftpb.Entry {
	e := &raftpb.Entry{Index: &index, Term: &term, Type: new(raftpb.EntryNormal)}
	if data != "" {
		e.Data = []byte(data)
	}
	return e
}

func entries(lo, hi, term uint64) (out []*raftpb.Entry) {
	for i := lo; i < hi; i++ {
		out = append(out, entry(i, term, "data"))
	}
	return out
}

// CommitUnknown commits a record of an unknown type.
func (d *Disk) CommitUnknown() error {
	return d.update(func() error {
		return d.commit(forState, appendRecord(d.records, 99, nil, nil), func(*frame) {})
	})
}

func (d *Disk) Segment() uint64 { return d.seg.number }

// Spares returns the number of spare segments.
func (d *Disk) Spares() int {
	d.spares.mu.Lock()
	defer d.spares.mu.Unlock()
	return len(d.spares.ready)
}

// NoDirect is noDirect.
var NoDirect = noDirect
