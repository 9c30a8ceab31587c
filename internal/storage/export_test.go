package storage

import "go.etcd.io/raft/v3/raftpb"

// Inline makes the order of system calls the same each time.
func Inline(c Config) Config {
	c.inline = true
	return c
}

// Settle is what the timer does.
func (d *Disk) Settle() error {
	d.write.Lock()
	d.armed = d.cursor.commit
	d.write.Unlock()
	return d.settle()
}

// Check reads a directory as Open does, without changing it.
func Check(cfg Config) (*Disk, error) {
	d, err := newDisk(cfg)
	if err != nil {
		return nil, err
	}
	inv, err := d.inventory()
	if err == nil {
		err = d.loadIdentity()
	}
	if err == nil && d.bootstrapped {
		if _, _, err = d.loadLog(&inv); err == nil {
			err = d.check()
		}
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

// CommitUnknown commits a record of a kind that this release does not have.
func (d *Disk) CommitUnknown() error {
	return d.update(func() error {
		d.pending = appendRecord(d.pending, 99, nil, nil)
		return d.commit(forState, nil)
	})
}

// Spares returns how many spare segments there are.
func (d *Disk) Spares() int {
	d.spares.mu.Lock()
	defer d.spares.mu.Unlock()
	return len(d.spares.names)
}
