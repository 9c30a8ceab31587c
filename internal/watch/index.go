package watch

import (
	"slices"

	"leasehold.dev/internal/keyrange"
)

// filter is the set of event kinds that a watcher excludes.
type filter uint8

const (
	noPut filter = 1 << iota
	noDelete
	filters = 4 // number of possible filters
)

func (f filter) passes(isDelete bool) bool {
	if isDelete {
		return f&noDelete == 0
	}
	return f&noPut == 0
}

// group is the set of watchers with the same range and filter. They get the same events, so the
// events are matched and collected only once for all of them.
type group[E Event] struct {
	filter   filter
	watchers []*watcher[E] // watchers[i].slot == i

	// staged contains the matching events of the current distribution. After that, the queues of
	// all the watchers share it, so it must not be appended to in place.
	staged []E
	bytes  int
	first  int  // if shared is set, staged == events[first:first+len(staged)]
	shared bool // staged is still a part of the backlog's slice
}

// stage adds events[i]. As long as the matches are adjacent, staged is a part of the slice and
// nothing is copied.
func (g *group[E]) stage(events []E, i int) {
	n := len(g.staged)
	switch {
	case n == 0:
		g.first, g.shared, g.bytes = i, true, 0
		g.staged = events[i : i+1 : i+1]
	case g.shared && g.first+n == i:
		g.staged = events[g.first : i+1 : i+1]
	default:
		g.shared = false
		g.staged = append(g.staged, events[i])
	}
	g.bytes += events[i].Size()
}

// flush offers the staged events to every watcher, up to its queue's limit. Each watcher reads the
// rest from history. total is the length of the distributed slice. A small part of a large slice is
// copied, so that a slow watcher does not keep the whole slice in memory.
func (g *group[E]) flush(total int, limit Limit) {
	evs, lost := g.staged, int64(0)
	if limit.exceeded(len(evs), g.bytes) {
		if n := whole(evs, limit); n < len(evs) {
			lost = evs[n].Revision()
			evs, g.bytes = evs[:n], size(evs[:n])
		}
	}
	if g.shared && len(evs)*4 < total {
		evs = slices.Clone(evs)
	}
	evs = slices.Clip(evs)
	for _, w := range g.watchers {
		w.stream.offer(w, evs, g.bytes, len(g.watchers), lost)
	}
	g.staged = nil
}

// place holds the groups for one range, by filter.
type place[E Event] struct {
	groups [filters]*group[E]
}

// index finds the groups that match a key. Single keys, by far the most common case, are in a map,
// and ranges are in a tree.
type index[E Event] struct {
	points   map[string]*place[E]
	ranges   keyrange.Tree[*place[E]]
	watchers int
}

func (x *index[E]) init() { x.points = make(map[string]*place[E]) }

// at appends to buf the places that contain key.
func (x *index[E]) at(key string, buf []*place[E]) []*place[E] {
	if p := x.points[key]; p != nil {
		buf = append(buf, p)
	}
	return x.ranges.AppendAt(buf, key)
}

func (x *index[E]) find(r keyrange.Range) (*place[E], bool) {
	if r.End == "" {
		p, ok := x.points[r.Key]
		return p, ok
	}
	return x.ranges.Get(r)
}

func (x *index[E]) add(w *watcher[E]) {
	p, ok := x.find(w.what)
	if !ok {
		p = new(place[E])
		if w.what.End == "" {
			x.points[w.what.Key] = p
		} else {
			x.ranges.Put(w.what, p)
		}
	}
	g := p.groups[w.filter]
	if g == nil {
		g = &group[E]{filter: w.filter}
		p.groups[w.filter] = g
	}
	w.slot = len(g.watchers)
	g.watchers = append(g.watchers, w)
	x.watchers++
}

func (x *index[E]) remove(w *watcher[E]) {
	p, ok := x.find(w.what)
	if !ok || p.groups[w.filter] == nil || p.groups[w.filter].watchers[w.slot] != w {
		panic("watch: watcher is not in the index")
	}
	g := p.groups[w.filter]
	last := len(g.watchers) - 1
	g.watchers[w.slot] = g.watchers[last]
	g.watchers[w.slot].slot = w.slot
	g.watchers[last] = nil
	g.watchers = g.watchers[:last]
	x.watchers--
	if last > 0 {
		return
	}
	p.groups[w.filter] = nil
	if p.groups != [filters]*group[E]{} {
		return
	}
	if w.what.End == "" {
		delete(x.points, w.what.Key)
	} else {
		x.ranges.Remove(w.what)
	}
}

// each calls f for every watcher. The order only affects which stream wakes first.
func (x *index[E]) each(f func(*watcher[E])) {
	visit := func(p *place[E]) {
		for _, g := range p.groups {
			if g != nil {
				for _, w := range g.watchers {
					f(w)
				}
			}
		}
	}
	for _, p := range x.points {
		visit(p)
	}
	for p := range x.ranges.All() {
		visit(p)
	}
}
