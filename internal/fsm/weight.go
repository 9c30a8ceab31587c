package fsm

import "leasehold.dev/lease"

// compactWeight fills an entry, so that a compaction is the last command of its own: what reads the
// past behind it can be prepared before the next entry begins (see Prepare).
const compactWeight = 8192

// keysLooked is how many keys a member looks at in the time of a put.
const keysLooked = 8

// Weight returns how long it takes about to apply a command, in those of a put, to the present
// state and after commands of so much weight that are not applied yet: they may have made a key
// each, for all that is known. Members need not agree on it.
func (m *Machine) Weight(c Command, unapplied int) int {
	who, _ := unwrap(c)
	return weigher{m, unapplied, m.meta.access.IsRoot(who)}.weigh(c)
}

type weigher struct {
	*Machine
	unapplied int
	root      bool // nobody asks whether the caller may write the keys of a lease
}

func (m weigher) weigh(c Command) int {
	switch c := Inner(c).(type) {
	case *Put:
		return 1 + m.vetted(c)/keysLooked
	case *Expire:
		n := 1 + 2*len(c.Leases)
		for i := range c.Leases {
			n += m.lessor.KeyCount(c.Leases[i].ID)
		}
		return n
	case *Checkpoint:
		return 1 + len(c.Leases)
	case *Revoke:
		return 1 + c.keysOf(m.lessor) + m.unapplied
	case *DeleteRange:
		return 1 + m.countIn(c.Key, c.End)
	case *Txn:
		return m.weightOf(c)
	case *Compact:
		return compactWeight
	default:
		if c.kind().aboutAccess() {
			return 1 + m.meta.access.Len() + m.unapplied // a change copies the lists of all
		}
		return 1
	}
}

// weightOf returns the weight of a transaction, as if both its branches were run.
func (m weigher) weightOf(c *Txn) int {
	n, looked := 1+len(c.Compare), 0
	for i := range c.Compare {
		looked += m.countIn(c.Compare[i].Key, c.Compare[i].End) * int(1+c.Compare[i].extra())
	}
	for _, ops := range [...][]Op{c.Then, c.Else} {
		for i := range ops {
			switch op := &ops[i]; {
			case op.Put != nil:
				n++
				looked += m.vetted(op.Put)
			case op.Delete != nil:
				n += 1 + m.countIn(op.Delete.Key, op.Delete.End)
			case op.Revoke != nil:
				n += 1 + op.Revoke.keysOf(m.lessor) + m.unapplied
			case op.Txn != nil:
				n += m.weightOf(op.Txn)
			case op.Range != nil:
				n++
				looked += m.looks(op.Range)
			default:
				n++
			}
		}
	}
	return n + looked/keysLooked
}

// looks returns about how many keys a range of a transaction looks at: of the past also at those
// that were deleted since, and at those that it sorts several times.
func (m weigher) looks(r *Range) int {
	n := m.countIn(r.Key, r.End)
	if r.past() {
		n += m.store.Deleted()
	}
	return n * int(1+r.Options.Comparisons())
}

// vetted returns how many keys a put on a lease looks at to learn whether its caller may write them
// all.
func (m weigher) vetted(c *Put) int {
	if m.root || c.Lease == 0 {
		return 0
	}
	return m.lessor.KeyCount(c.Lease) + m.unapplied
}

// countIn returns how many keys there may be in a range.
func (m weigher) countIn(key, end string) int {
	if end == "" {
		return 0
	}
	return m.store.Count(key, end) + m.unapplied
}

// keysOf returns how many keys end with the lease that is revoked.
func (c *Revoke) keysOf(l *lease.Lessor) int {
	if info, ok := l.ByName(c.Name); ok {
		return l.KeyCount(info.ID)
	}
	return l.KeyCount(c.ID)
}
