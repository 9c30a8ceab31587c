package listen

import (
	"container/heap"
	"container/list"
	"time"
)

// A crowd groups entries of clients by [Site], and determines the site with the most entries.
type crowd struct {
	sites map[string]*pile
	piles []*pile // a heap, largest first
	size  int
}

// pile contains the entries of one site, oldest first.
type pile struct {
	list.List // of entries
	site      string
	at        int // index in the heap of piles
}

// entry is one element of a crowd.
type entry struct {
	pile  *pile
	at    *list.Element
	value any
	since time.Time
}

func newCrowd() crowd { return crowd{sites: make(map[string]*pile)} }

func (c *crowd) add(site string, value any) *entry {
	p := c.sites[site]
	if p == nil {
		p = &pile{site: site}
		c.sites[site] = p
		heap.Push(c, p)
	}
	e := &entry{pile: p, value: value, since: time.Now()}
	e.at = p.PushBack(e)
	c.size++
	heap.Fix(c, p.at)
	return e
}

func (c *crowd) remove(e *entry) {
	p := e.pile
	p.Remove(e.at)
	c.size--
	if p.List.Len() > 0 {
		heap.Fix(c, p.at)
		return
	}
	heap.Remove(c, p.at)
	delete(c.sites, p.site)
}

// oldest returns the oldest entry of the site with the most entries. comes is the site that is
// about to get another entry; that site wins a tie. If the crowd is empty, oldest returns nil.
func (c *crowd) oldest(comes string) *entry {
	if len(c.piles) == 0 {
		return nil
	}
	p := c.piles[0]
	if own := c.sites[comes]; own != nil && own.List.Len() >= p.List.Len() {
		p = own
	}
	return p.Front().Value.(*entry)
}

// lead returns how many more entries the largest site has than the given site.
func (c *crowd) lead(site string) int {
	if len(c.piles) == 0 {
		return 0
	}
	n := c.piles[0].List.Len()
	if p := c.sites[site]; p != nil {
		n -= p.List.Len()
	}
	return n
}

// Len implements heap.Interface.
func (c *crowd) Len() int { return len(c.piles) }

// Less implements heap.Interface.
func (c *crowd) Less(i, j int) bool { return c.piles[i].List.Len() > c.piles[j].List.Len() }

// Swap implements heap.Interface.
func (c *crowd) Swap(i, j int) {
	c.piles[i], c.piles[j] = c.piles[j], c.piles[i]
	c.piles[i].at, c.piles[j].at = i, j
}

// Push implements heap.Interface.
func (c *crowd) Push(p any) {
	p.(*pile).at = len(c.piles)
	c.piles = append(c.piles, p.(*pile))
}

// Pop implements heap.Interface.
func (c *crowd) Pop() any {
	last := len(c.piles) - 1
	p := c.piles[last]
	c.piles = c.piles[:last]
	return p
}
