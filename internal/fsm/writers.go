package fsm

import (
	"leasehold.dev/internal/access"
	"leasehold.dev/internal/encoding"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// keyWriters remembers of leases that belong to nobody, and have many keys, who may write all of
// the keys, so that a put to such a lease does not look at each. It follows from the state and is
// no part of it: members that remember other things decide alike.
type keyWriters struct {
	by *access.State // by which it was decided
	of map[lease.ID]map[writerName]*keyWriter
	n  int // of all leases
}

// writerName tells callers apart that may do different things. Of a user roles are empty, and else
// they are a list, as the log has it: so no name of a user or a role stands for another.
type writerName struct{ user, roles string }

// keyWriter is a caller that has asked to write a key of a lease.
type keyWriter struct {
	who access.Caller
	// denied is a key of the lease that it may not write, if may is not set. If it may write all
	// keys, that holds until a key is attached that it may not write.
	denied string
	may    bool
}

const (
	fewKeys    = 16      // of a lease are looked at each time
	maxWriters = 1 << 14 // of all leases are remembered
	// maxOfLease is how many are remembered of a lease: each is asked for when a key is attached.
	maxOfLease = 64
)

func nameOf(who access.Caller) writerName {
	if who.Bound == nil {
		return writerName{user: who.User}
	}
	roles := encoding.AppendList(nil, who.Bound.Roles, encoding.AppendBytes)
	return writerName{who.User, string(roles)}
}

// mayWriteAll needs write on all keys of a lease, for a caller that has logged in.
func (p *permission) mayWriteAll(id lease.ID) error {
	if p.lessor.KeyCount(id) <= fewKeys {
		_, err := p.writeAll(id)
		return err
	}
	w := p.writers
	if w.by != p.access || w.n >= maxWriters {
		*w = keyWriters{by: p.access, of: make(map[lease.ID]map[writerName]*keyWriter)}
	}
	name := nameOf(p.who)
	known := w.of[id][name]
	if known != nil && known.may {
		return nil
	}
	if known != nil && p.lessor.LeaseOf(known.denied) == id {
		return p.check(access.Write, known.denied, "")
	}
	if known == nil {
		if len(w.of[id]) >= maxOfLease {
			w.n -= len(w.of[id])
			delete(w.of, id)
		}
		if w.of[id] == nil {
			w.of[id] = make(map[writerName]*keyWriter)
		}
		known = new(keyWriter)
		w.of[id][name] = known
		w.n++
	}
	denied, err := p.writeAll(id)
	*known = keyWriter{who: p.who, denied: denied, may: err == nil}
	return err
}

// writeAll looks at all keys of a lease. It returns the key that the caller may not write.
func (p *permission) writeAll(id lease.ID) (denied string, err error) {
	for key := range p.lessor.EachKey(id) {
		if err := p.check(access.Write, key, ""); err != nil {
			return key, err
		}
	}
	return "", nil
}

// attached notes that a lease has another key.
func (w *keyWriters) attached(id lease.ID, key string) {
	for _, x := range w.of[id] {
		if w.by.Check(x.who, access.Write, keyrange.Range{Key: key}) != nil {
			x.denied, x.may = key, false
		}
	}
}
