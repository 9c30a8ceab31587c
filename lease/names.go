package lease

import (
	"cmp"
	"slices"
	"strings"
)

// maxNames is how many names a page of the index holds at most.
const maxNames = 256

// names says which lease holds a name, in the order of the names.
//
// It is an ordered list of small sorted pages: to find a name costs two binary
// searches, to add or remove one moves at most a page of names and, once in a
// while, the list of pages. A View shares the pages, as it does those of the
// table.
//
// Invariants: no page is empty, names ascend within pages and from one to the
// next.
type names struct {
	pages []*namePage
	len   int
}

type namePage struct {
	entries []nameEntry
	// epoch is the table's when the page was made or copied: see page.epoch.
	epoch uint64
}

type nameEntry struct {
	name string
	slot uint32
}

func byName(e nameEntry, name string) int { return cmp.Compare(e.name, name) }

// seek returns where a name is, or would be: in which page, and where in that.
// Without pages it is page 0.
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

// find returns the slot of the lease that holds a name.
func (n *names) find(name string) (slot uint32, ok bool) {
	page, at, ok := n.seek(name)
	if !ok {
		return 0, false
	}
	return n.pages[page].entries[at].slot, true
}

// mutable returns a page to be written: a copy, if a View may hold the one
// there was.
func (n *names) mutable(page int, epoch uint64) *namePage {
	p := n.pages[page]
	if p.epoch != epoch {
		p = &namePage{entries: slices.Clone(p.entries), epoch: epoch}
		n.pages[page] = p
	}
	return p
}

// add adds a name that is not there.
func (n *names) add(name string, slot uint32, epoch uint64) {
	n.len++
	page, at, _ := n.seek(name)
	if len(n.pages) == 0 {
		n.pages = append(n.pages, &namePage{epoch: epoch})
	}
	p := n.mutable(page, epoch)
	if len(p.entries) == maxNames {
		// Half of them go to a page of their own; none, if the new name is the
		// last of all, so that names that only ascend fill their pages.
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

// remove removes a name that is there.
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

// snapshot returns the names as they are, for a View.
func (n *names) snapshot() names { return names{slices.Clone(n.pages), n.len} }
