package watch

import (
	"errors"
	"fmt"
	"sort"
	"sync"
	"sync/atomic"
)

// event is a change in the toy store.
type event struct {
	key  string
	rev  int64
	del  bool
	size int
}

func (e *event) Key() string     { return e.key }
func (e *event) Revision() int64 { return e.rev }
func (e *event) IsDelete() bool  { return e.del }
func (e *event) Size() int       { return e.size }

func (e *event) String() string {
	if e.del {
		return fmt.Sprintf("%d:-%s", e.rev, e.key)
	}
	return fmt.Sprintf("%d:%s", e.rev, e.key)
}

func put(key string) *event { return &event{key: key, size: 10} }
func del(key string) *event { return &event{key: key, size: 5, del: true} }

var errCompacted = errors.New("toy: compacted")

// view is an immutable view of the toy store. It contains every event since revision 1.
type view struct {
	events         []*event
	rev, compacted int64
	reading        func() // called by Events, if set
}

func (v *view) Revision() int64  { return v.rev }
func (v *view) Compacted() int64 { return v.compacted }

func (v *view) Events(key, end string, from int64, limit int) ([]*event, int64, error) {
	if v.reading != nil {
		v.reading()
	}
	if from <= v.compacted {
		return nil, 0, errCompacted
	}
	var out []*event
	for i := v.search(from); i < len(v.events); i++ {
		e := v.events[i]
		if len(out) >= limit && out[len(out)-1].rev != e.rev {
			return out, e.rev, nil
		}
		if inRange(key, end, e.key) {
			out = append(out, e)
		}
	}
	return out, v.rev + 1, nil
}

func (v *view) search(rev int64) int {
	return sort.Search(len(v.events), func(i int) bool { return v.events[i].rev >= rev })
}

// truth returns the events that a watcher must receive in the revisions [from, to], regardless of
// compaction.
func (v *view) truth(r Request, from, to int64) (out []*event) {
	for i := v.search(from); i < len(v.events) && v.events[i].rev <= to; i++ {
		e := v.events[i]
		if inRange(r.Key, r.End, e.key) && !(e.del && r.NoDelete) && !(!e.del && r.NoPut) {
			out = append(out, e)
		}
	}
	return out
}

// inRange reports whether k is in a range. It is written to be obviously correct.
func inRange(key, end, k string) bool {
	switch end {
	case "":
		return k == key
	case "\x00":
		return k >= key
	}
	return k >= key && k < end
}

// store is a toy store with one writer. mu allows tests with several writers.
type store struct {
	mu  sync.Mutex
	cur atomic.Pointer[view]
	hub *Hub[*event]
	// shown, if set, is called once after a view has been loaded and before it is used. It
	// simulates a concurrent writer.
	shown func()
}

func newStore(o Options) *store {
	s := new(store)
	s.cur.Store(&view{rev: 1}) // like etcd, an empty store is at revision 1
	s.hub = New(func() History[*event] {
		v := s.cur.Load()
		if f := s.shown; f != nil {
			s.shown = nil
			f()
		}
		return v
	}, o)
	return s
}

// commit adds a revision with the given events and makes it visible without publishing it.
func (s *store) commit(evs ...*event) int64 {
	old := s.cur.Load()
	v := &view{rev: old.rev + 1, compacted: old.compacted}
	for _, e := range evs {
		e.rev = v.rev
	}
	// Views share the array. An older view does not access elements past its own length.
	v.events = append(old.events, evs...)
	s.cur.Store(v)
	return v.rev
}

// write adds a revision with the given events and publishes it.
func (s *store) write(evs ...*event) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	rev := s.commit(evs...)
	s.hub.Publish(rev, evs)
	return rev
}

func (s *store) compact(rev int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v := *s.cur.Load()
	v.compacted = max(v.compacted, min(rev, v.rev))
	s.cur.Store(&v)
}
