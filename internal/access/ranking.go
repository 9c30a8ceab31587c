package access

import (
	"cmp"
	"slices"
)

// Ranking finds the principals with the highest usage of each resource, and the total usage of all
// others, in bounded memory.
type Ranking struct {
	most int
	// Top lists the principals with the highest usage of each resource, in descending order.
	Top [Resources][]Portion
	// Rest is the total usage of all other principals.
	Rest [Resources]int64
}

// Portion is how much of a resource a principal uses.
type Portion struct {
	Principal string
	Has       int64
}

// NewRanking returns a Ranking with at most the given number of principals per resource.
func NewRanking(most int) *Ranking { return &Ranking{most: most} }

// Add adds a principal's usage of a resource. Call it at most once per principal and resource. The
// order of calls does not matter.
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

// byPortion orders larger portions first.
func byPortion(a, b Portion) int {
	return cmp.Or(cmp.Compare(b.Has, a.Has), cmp.Compare(a.Principal, b.Principal))
}
