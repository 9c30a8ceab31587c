package directory

import (
	"cmp"

	"github.com/tidwall/btree"

	"leasehold.dev/lease"
)

// schedule orders caches by when they need attention, so the due ones can be found without visiting
// every cache.
type schedule struct{ entries *btree.BTreeG[scheduled] }

type scheduled struct {
	at lease.Instant
	c  *cache
}

func newSchedule() schedule {
	return schedule{btree.NewBTreeGOptions(func(a, b scheduled) bool {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.c.token, b.c.token)) < 0
	}, btree.Options{NoLocks: true})}
}

// put schedules a cache for the instant at, or removes it if at is 0. old points to the field of
// the cache that holds its instant in this schedule.
func (s schedule) put(c *cache, old *lease.Instant, at lease.Instant) {
	if *old == at {
		return
	}
	if *old != 0 {
		s.entries.Delete(scheduled{*old, c})
	}
	if *old = at; at != 0 {
		s.entries.Set(scheduled{at, c})
	}
}

// first returns the earliest instant.
func (s schedule) first() (at lease.Instant, ok bool) {
	e, ok := s.entries.Min()
	return e.at, ok
}

// until returns the caches that are due by now, ordered by token. most limits their number.
func (s schedule) until(now lease.Instant, most int) (list []*cache) {
	s.entries.Scan(func(e scheduled) bool {
		if e.at > now || len(list) >= most {
			return false
		}
		list = append(list, e.c)
		return true
	})
	return sortedByID(list)
}
