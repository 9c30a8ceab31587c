package directory

import (
	"github.com/tidwall/btree"
	"leasehold.dev/internal/keyrange"
)

// spans is a set of keys, stored as ranges that neither overlap nor touch.
//
// Invariant: to maps the first key of each range to the first key after the range, or to "" if the
// range is unbounded.
type spans struct{ to btree.Map[string, string] }

func (s *spans) len() int { return s.to.Len() }

// overlaps reports whether any key of the set is in r.
func (s *spans) overlaps(r keyrange.Range) (found bool) {
	if r.Empty() {
		return false
	}
	s.to.Descend(r.Key, func(_, to string) bool {
		found = to == "" || r.Key < to
		return false
	})
	if found {
		return true
	}
	s.to.Ascend(r.Key, func(from, _ string) bool {
		found = r.Reaches(from)
		return false
	})
	return found
}

// add adds the keys of r.
func (s *spans) add(r keyrange.Range) {
	if r.Empty() {
		return
	}
	what := r.Span()
	from, to := what.From, what.To
	s.to.Descend(from, func(f, t string) bool {
		if t == "" || from <= t {
			from, to = f, keyrange.Later(t, to)
		}
		return false
	})
	for _, f := range s.starts(from, to) {
		t, _ := s.to.Delete(f)
		to = keyrange.Later(t, to)
	}
	s.to.Set(from, to)
}

// starts returns the first keys of the ranges that begin between from and to, inclusive.
func (s *spans) starts(from, to string) (list []string) {
	s.to.Ascend(from, func(f, _ string) bool {
		if to != "" && f > to {
			return false
		}
		list = append(list, f)
		return true
	})
	return list
}

// remove removes the keys of r.
func (s *spans) remove(r keyrange.Range) {
	if !s.overlaps(r) {
		return
	}
	what := r.Span()
	from, to := what.From, what.To
	s.to.Descend(from, func(f, _ string) bool {
		if f < from {
			s.split(f, from)
		}
		return false
	})
	for _, f := range s.starts(from, to) {
		t, _ := s.to.Delete(f)
		if to != "" && (t == "" || to < t) {
			s.to.Set(to, t)
		}
	}
}

// split splits the range that begins at f into two if it extends beyond at.
func (s *spans) split(f, at string) {
	if t, _ := s.to.Get(f); t == "" || at < t {
		s.to.Set(f, at)
		s.to.Set(at, t)
	}
}

func (s *spans) clear() { s.to = btree.Map[string, string]{} }
