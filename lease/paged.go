package lease

// Everything that is kept for each lease sits in pages of pageSize slots. Pages
// never move, so that a table that grows to millions is never copied, and they
// are of sizes that the allocator hands out without waste.
const (
	pageBits = 8
	pageSize = 1 << pageBits
)

// paged is an array that grows page by page; pages may be missing. The zero
// value is empty.
type paged[T any] struct {
	pages []*[pageSize]T
}

// at returns element i, whose page is there.
func (p *paged[T]) at(i uint32) *T { return &p.pages[i>>pageBits][i&(pageSize-1)] }

// get returns a copy of element i, zero if it was never grown to.
func (p *paged[T]) get(i uint32) (v T) {
	if n := int(i >> pageBits); n < len(p.pages) && p.pages[n] != nil {
		v = p.pages[n][i&(pageSize-1)]
	}
	return v
}

// grow makes the page of element i, if need be, and returns the element.
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

// clear zeroes element i, and makes no page for that.
func (p *paged[T]) clear(i uint32) {
	if n := int(i >> pageBits); n < len(p.pages) && p.pages[n] != nil {
		var zero T
		p.pages[n][i&(pageSize-1)] = zero
	}
}
