package access

import (
	"cmp"
	"slices"
)

// Ranking tells the principals that have most of each resource, and how much all others have
// together. It keeps no more of them than it tells.
type Ranking struct {
	most int
	// Top has, by resource, the principals that have most of it, the largest first.
	Top [Resources][]Portion
	// Rest is what the others have.
	Rest [Resources]int64
}

// Portion is how much a principal has of a resource.
type Portion struct {
	Principal string
	Has       int64
}

// NewRanking returns a Ranking of so many principals by each resource.
func NewRanking(most int) *Ranking { return &Ranking{most: most} }

// Add adds what a principal has. Each principal is added once for a resource. In which order they
// are makes no difference.
func (r *Ranking) Add(principal string, what Resource, has int64) {
	if has == 0 {
		return
	}
	p, top := Portion{principal, has}, r.Top[what]
	at, _ := slices.BinarySearchFunc(top, p, byPortion)
	if at >= r.most {
		r.Rest[what] += has
		return
	}
	if len(top) == r.most {
		r.Rest[what] += top[len(top)-1].Has
		top = top[:len(top)-1]
	}
	r.Top[what] = slices.Insert(top, at, p)
}

// byPortion orders the larger portion first.
func byPortion(a, b Portion) int {
	return cmp.Or(cmp.Compare(b.Has, a.Has), cmp.Compare(a.Principal, b.Principal))
}
