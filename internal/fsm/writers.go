package fsm

import (
	"leasehold.dev/internal/access"
	"leasehold.dev/internal/encoding"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// keyWriters caches which callers may write all keys of a lease. It covers leases that have many
// keys and neither a principal nor a name. A put on such a lease need not check every key. The
// cache is derived from the state but not part of it. Members reach the same decisions even if
// their caches differ.
type keyWriters struct {
	by *access.State // the users and roles on which the entries are based
	of map[lease.ID]map[writerName]*keyWriter
	n  int // total number of entries
}

// writerName distinguishes callers whose permissions can differ. For a user, roles is empty. For
// any other caller, roles is the list of roles as encoded in the log, which is never empty. A user
// therefore never has the same writerName as a caller that is not a user.
type writerName struct{ user, roles string }

// keyWriter is a caller that wrote a key of a lease, or tried to.
type keyWriter struct {
	who access.Caller
	// denied is a key of the lease that the caller may not write. It is meaningless if may is set.
	// Once set, may remains set until a key that the caller may not write is attached.
	denied string
	may    bool
}

const (
	fewKeys    = 16      // for a lease with at most this many keys, every key is checked each time
	maxWriters = 1 << 14 // maximum number of entries for all leases
	// maxOfLease is the maximum number of entries for one lease. Attaching a key checks all of
	// them.
	maxOfLease = 64
)

func nameOf(who access.Caller) writerName {
	if who.Bound == nil {
		return writerName{user: who.User}
	}
	roles := encoding.AppendList(nil, who.Bound.Roles, encoding.AppendBytes)
	return writerName{who.User, string(roles)}
}

// mayWriteAll requires permission to write all keys of a lease. The caller must have logged in.
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

// writeAll checks all keys of a lease. It returns the first key that the caller may not write.
func (p *permission) writeAll(id lease.ID) (denied string, err error) {
	for key := range p.lessor.EachKey(id) {
		if err := p.check(access.Write, key, ""); err != nil {
			return key, err
		}
	}
	return "", nil
}

// attached updates the cache after a key has been attached to a lease.
func (w *keyWriters) attached(id lease.ID, key string) {
	for _, x := range w.of[id] {
		if w.by.Check(x.who, access.Write, keyrange.Range{Key: key}) != nil {
			x.denied, x.may = key, false
		}
	}
}
