package lease

// All per-lease data is stored in pages of pageSize slots. Pages never move, so a table that grows
// to millions of leases is never copied. The page sizes match the allocator's size classes.
const (
	pageBits = 8
	pageSize = 1 << pageBits
)

// paged is an array that grows page by page. Pages may be missing. The zero value is empty.
type paged[T any] struct {
	pages []*[pageSize]T
}

// at returns element i. Its page must exist.
func (p *paged[T]) at(i uint32) *T { return &p.pages[i>>pageBits][i&(pageSize-1)] }

// get returns a copy of element i, or zero if its page does not exist.
func (p *paged[T]) get(i uint32) (v T) {
	if n := int(i >> pageBits); n < len(p.pages) && p.pages[n] != nil {
		v = p.pages[n][i&(pageSize-1)]
	}
	return v
}

// grow returns element i, creating its page if necessary.
func (p *paged[T]) grow(i uint32) *T {
	n := int(i >> pageBits)
	for n >= len(p.pages) {
		p.pages = append(p.pages, nil)
	}
	if p.pages[n] == nil {
		p.pages[n] = new([pageSize]T)
	}
	return p.at(i)
}

// clear zeroes element i without creating its page.
func (p *paged[T]) clear(i uint32) {
	if n := int(i >> pageBits); n < len(p.pages) && p.pages[n] != nil {
		var zero T
		p.pages[n][i&(pageSize-1)] = zero
	}
}
