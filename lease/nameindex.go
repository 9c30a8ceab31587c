package lease

import (
	"cmp"
	"slices"
	"strings"
)

// maxNames is the maximum number of names on a page of the index.
const maxNames = 256

// names maps names to leases, ordered by name. No two leases have the same name: Grant returns a
// NameError for a name that is taken, and Recover rejects a table with duplicate names.
//
// It is an ordered list of small sorted pages. Finding a name costs two binary searches. Adding or
// removing a name moves at most one page of names and, occasionally, the list of pages. A View
// shares these pages, just as it shares the pages of the table.
//
// Invariants: no page is empty; names ascend within pages and across pages.
type names struct {
	pages []*namePage
	len   int
}

type namePage struct {
	entries []nameEntry
	// epoch is the epoch of the table when the page was created or copied: see page.epoch.
	epoch uint64
}

type nameEntry struct {
	name string
	slot uint32
}

func byName(e nameEntry, name string) int { return cmp.Compare(e.name, name) }

// seek returns the page and position of a name, or where it would be inserted. If there are no
// pages, it returns page 0.
func (n *names) seek(name string) (page, at int, ok bool) {
	page, ok = slices.BinarySearchFunc(n.pages, name, func(p *namePage, name string) int {
		return cmp.Compare(p.entries[0].name, name)
	})
	if ok {
		return page, 0, true
	}
	if page == 0 {
		return 0, 0, false
	}
	page--
	at, ok = slices.BinarySearchFunc(n.pages[page].entries, name, byName)
	return page, at, ok
}

// find returns the slot of the lease that has a name.
func (n *names) find(name string) (slot uint32, ok bool) {
	page, at, ok := n.seek(name)
	if !ok {
		return 0, false
	}
	return n.pages[page].entries[at].slot, true
}

// mutable returns a page for writing. It copies the page if a View may hold it.
func (n *names) mutable(page int, epoch uint64) *namePage {
	p := n.pages[page]
	if p.epoch != epoch {
		p = &namePage{entries: slices.Clone(p.entries), epoch: epoch}
		n.pages[page] = p
	}
	return p
}

// add adds a name that is not in the index.
func (n *names) add(name string, slot uint32, epoch uint64) {
	n.len++
	page, at, _ := n.seek(name)
	if len(n.pages) == 0 {
		n.pages = append(n.pages, &namePage{epoch: epoch})
	}
	p := n.mutable(page, epoch)
	if len(p.entries) == maxNames {
		// Half of the names move to a new page. If the new name sorts after all others, none move,
		// so that inserting names in ascending order fills the pages.
		half := maxNames / 2
		if at == maxNames && page == len(n.pages)-1 {
			half = maxNames
		}
		q := &namePage{entries: slices.Clone(p.entries[half:]), epoch: epoch}
		clear(p.entries[half:])
		p.entries = p.entries[:half]
		n.pages = slices.Insert(n.pages, page+1, q)
		if at > half || at == maxNames {
			p, at = q, at-half
		}
	}
	p.entries = slices.Insert(p.entries, at, nameEntry{name, slot})
}

// remove removes a name that is in the index.
func (n *names) remove(name string, epoch uint64) {
	n.len--
	page, at, _ := n.seek(name)
	p := n.mutable(page, epoch)
	p.entries = slices.Delete(p.entries, at, at+1)
	if page+1 < len(n.pages) {
		if q := n.pages[page+1]; len(p.entries)+len(q.entries) <= maxNames/2 {
			p.entries = append(p.entries, q.entries...)
			n.pages = slices.Delete(n.pages, page+1, page+2)
		}
	}
	if len(p.entries) == 0 {
		n.pages = slices.Delete(n.pages, page, page+1)
	}
}

// within yields the names with a prefix, in order, until yield returns false.
func (n *names) within(prefix string, yield func(nameEntry) bool) {
	page, at, _ := n.seek(prefix)
	for ; page < len(n.pages); page++ {
		for _, e := range n.pages[page].entries[at:] {
			if !strings.HasPrefix(e.name, prefix) || !yield(e) {
				return
			}
		}
		at = 0
	}
}

// snapshot returns the current names for a View.
func (n *names) snapshot() names { return names{slices.Clone(n.pages), n.len} }
