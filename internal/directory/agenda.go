package directory

import (
	"cmp"

	"github.com/tidwall/btree"

	"leasehold.dev/lease"
)

// agenda says for caches when something is to be done about them, so that nobody has to look
// at all caches to find those few whose time has come.
type agenda struct{ entries *btree.BTreeG[appointment] }

// appointment is that something is to be done about a cache at an instant.
type appointment struct {
	at lease.Instant
	c  *cache
}

func newAgenda() agenda {
	return agenda{btree.NewBTreeGOptions(func(a, b appointment) bool {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.c.token, b.c.token)) < 0
	}, btree.Options{NoLocks: true})}
}

// put moves the entry of a cache to an instant, 0 for none. Old is where the entry is: a field
// of the cache, one for each agenda.
func (a agenda) put(c *cache, old *lease.Instant, at lease.Instant) {
	if *old == at {
		return
	}
	if *old != 0 {
		a.entries.Delete(appointment{*old, c})
	}
	if *old = at; at != 0 {
		a.entries.Set(appointment{at, c})
	}
}

// first returns the first instant for which there is an entry.
func (a agenda) first() (at lease.Instant, ok bool) {
	e, ok := a.entries.Min()
	return e.at, ok
}

// until returns the caches whose entries are not after an instant, in the order of the
// tokens: the first of them, if they are more than most.
func (a agenda) until(now lease.Instant, most int) (list []*cache) {
	a.entries.Scan(func(e appointment) bool {
		if e.at > now || len(list) >= most {
			return false
		}
		list = append(list, e.c)
		return true
	})
	return inOrder(list)
}
