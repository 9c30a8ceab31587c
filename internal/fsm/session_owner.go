package fsm

import (
	"cmp"
	"container/heap"
)

// sessionOwner is a user with open sessions. An empty user stands for all anonymous callers.
//
// Invariants: the ring at root contains the sessions of this user; count and bytes are their
// totals; places has the owner's positions in the rankings.
type sessionOwner struct {
	user  string
	count int
	bytes int64
	// root.newer is the least recently used session, and root.older the most recently used
	root   session
	places [measures]int
}

// measure is a quantity for ranking owners.
type measure int

const (
	byCount measure = iota
	byBytes

	measures
)

func (o *sessionOwner) has(by measure) int64 {
	if by == byCount {
		return int64(o.count)
	}
	return o.bytes
}

// sessionOwners finds the owner with the most sessions or bytes.
type sessionOwners struct {
	byUser map[string]*sessionOwner
	ranked [measures]ownerRanking
}

// of returns the owner for a user, creating it if necessary.
func (l *sessionOwners) of(user string) *sessionOwner {
	o := l.byUser[user]
	if o == nil {
		o = &sessionOwner{user: user}
		o.root.older, o.root.newer = &o.root, &o.root
		if l.byUser == nil {
			l.byUser = make(map[string]*sessionOwner)
		}
		l.byUser[user] = o
		for by := range measures {
			l.ranked[by].by = by
			heap.Push(&l.ranked[by], o)
		}
	}
	return o
}

// count adds to the totals of an owner.
func (l *sessionOwners) count(o *sessionOwner, sessions int, bytes int64) {
	o.count += sessions
	o.bytes += bytes
	if o.count == 0 {
		delete(l.byUser, o.user)
		for by := range measures {
			heap.Remove(&l.ranked[by], o.places[by])
		}
		return
	}
	for by := range measures {
		heap.Fix(&l.ranked[by], o.places[by])
	}
}

// victim returns the owner that must give up a session to make room for needs. It is the owner with
// the most sessions or bytes, or needs itself if no other owner has more. This way, an owner never
// loses a session to an owner that has more.
func (l *sessionOwners) victim(needs *sessionOwner, by measure) *sessionOwner {
	if most := l.ranked[by].list[0]; most.has(by) > needs.has(by) {
		return most
	}
	return needs
}

// toFront makes a session the most recently used session of its owner.
func (s *session) toFront() {
	s.older, s.newer = s.owner.root.older, &s.owner.root
	s.older.newer, s.newer.older = s, s
}

func (s *session) unlink() { s.older.newer, s.newer.older = s.newer, s.older }

// ownerRanking is a heap.Interface with the largest owner first. Ties are broken by user name, so
// that all members select the same owner.
type ownerRanking struct {
	by   measure
	list []*sessionOwner
}

// Len implements heap.Interface.
func (r *ownerRanking) Len() int { return len(r.list) }

// Less implements heap.Interface.
func (r *ownerRanking) Less(i, j int) bool {
	a, b := r.list[i], r.list[j]
	return cmp.Or(cmp.Compare(b.has(r.by), a.has(r.by)), cmp.Compare(a.user, b.user)) < 0
}

// Swap implements heap.Interface.
func (r *ownerRanking) Swap(i, j int) {
	r.list[i], r.list[j] = r.list[j], r.list[i]
	r.list[i].places[r.by], r.list[j].places[r.by] = i, j
}

// Push implements heap.Interface.
func (r *ownerRanking) Push(x any) {
	o := x.(*sessionOwner)
	o.places[r.by] = len(r.list)
	r.list = append(r.list, o)
}

// Pop implements heap.Interface.
func (r *ownerRanking) Pop() any {
	last := len(r.list) - 1
	o := r.list[last]
	r.list = r.list[:last]
	return o
}
