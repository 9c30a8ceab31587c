package cluster

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// A verb says what a call does.
type verb string

// The calls of the history. There is an expire for every grant: nobody calls
// it, and the service may do it at any time after the lease's earliest expiry.
const (
	put       verb = "put"
	get       verb = "get"
	remove    verb = "delete"
	swap      verb = "swap" // put if the key's mod revision is the expected one
	grant     verb = "grant"
	revoke    verb = "revoke"
	keepAlive verb = "keep alive"
	expire    verb = "expire"
)

// A call is what a client asked for.
type call struct {
	verb   verb
	key    string
	value  string // of put and swap; no two calls have the same
	lease  int64
	expect int64         // of swap
	ttl    time.Duration // of grant

	// ended says of a call that was refused that the lease may have ended by
	// then: its earliest expiry had passed, or a revoke had got no answer.
	ended bool
}

func (c call) String() string {
	return fmt.Sprintf("%s %s %s lease %d expect %d", c.verb, c.key, c.value, c.lease, c.expect)
}

// An outcome says what became of a call.
type outcome string

const (
	done     outcome = "done"     // it was answered
	refused  outcome = "refused"  // the lease does not exist; nothing happened
	differed outcome = "differed" // the key was not as expected; nothing happened
	unknown  outcome = "unknown"  // it may have happened, or happen later
)

// An answer is what a client was told.
type answer struct {
	outcome  outcome
	revision int64  // of the store, where the answer says it
	pair     record // of get; zero if there is no such key
}

// A record is what the store has under a key.
type record struct {
	value                string
	create, mod, version int64
	lease                int64
}

// A state is what one correct member would hold. States are never changed.
type state struct {
	revision int64
	keys     map[string]record
	leases   map[int64]bool
}

func (s *state) equal(o *state) bool {
	return s.revision == o.revision && maps.Equal(s.keys, o.keys) &&
		maps.Equal(s.leases, o.leases)
}

// An event is one key's part of a revision.
type event struct {
	key   string
	value string
	lease int64
	gone  bool // deleted, by a client or with its lease
}

// A journal has the events of every revision, as all watches saw them, so that
// the search need not guess which of the calls without an answer made a
// revision. Without it (nil) any may have.
type journal map[int64][]event

// last returns the journal's last revision.
func (j journal) last() int64 { return slices.Max(append(slices.Collect(maps.Keys(j)), 0)) }

// A model is the store with its leases, one call after the other.
type model struct {
	first   int64 // revision of the empty store
	journal journal
	last    int64 // of the journal
}

func newModel(first int64, j journal) porcupine.Model {
	m := model{first: first, journal: j, last: j.last()}
	return porcupine.Model{
		Init: func() any { return &state{revision: m.first} },
		Step: func(s, in, out any) (bool, any) {
			next := m.step(s.(*state), in.(call), out.(answer))
			return next != nil, next
		},
		Equal: func(a, b any) bool { return a.(*state).equal(b.(*state)) },
		Hash:  func(s any) uint64 { return uint64(s.(*state).revision) },
		DescribeOperation: func(in, out any) string {
			return fmt.Sprintf("%v -> %+v", in, out)
		},
		DescribeState: func(s any) string { return fmt.Sprintf("%+v", *s.(*state)) },
	}
}

// step returns the state after a call, or nil if the answer is impossible.
func (m *model) step(s *state, c call, a answer) *state {
	switch c.verb {
	case get:
		return when(a.revision == s.revision && a.pair == s.keys[c.key], s)
	case put:
		return m.put(s, c, a)
	case swap:
		return m.swap(s, c, a)
	case remove:
		return m.remove(s, c, a)
	case keepAlive:
		if a.outcome == refused {
			return m.refuse(s, c)
		}
		return when(s.leases[c.lease], s)
	case grant:
		next := s.clone()
		next.leases[c.lease] = true
		// The revision of an answer about leases is the store's when it was
		// made, which is after the call's effect.
		return when(a.outcome == unknown || a.revision >= s.revision, next)
	case revoke, expire:
		return m.end(s, c, a)
	}
	panic("unknown verb " + string(c.verb))
}

func when(ok bool, s *state) *state {
	if !ok {
		return nil
	}
	return s
}

// refuse answers that there is no such lease. A lease without keys ends
// unnoticed: that it is refused is what shows it.
func (m *model) refuse(s *state, c call) *state {
	if !s.leases[c.lease] {
		return s
	}
	if !c.ended || len(s.attached(c.lease)) > 0 {
		return nil
	}
	next := s.clone()
	delete(next.leases, c.lease)
	return next
}

// attached returns the deletions that come with the end of a lease.
func (s *state) attached(lease int64) (gone []event) {
	for k, r := range s.keys {
		if r.lease == lease {
			gone = append(gone, event{key: k, gone: true})
		}
	}
	return gone
}

// never allows a call without an answer that it has had no effect, once all
// that had one is done. This leaves the search no choice when.
func (m *model) never(s *state) *state {
	return when(m.journal == nil || s.revision >= m.last, s)
}

func (m *model) put(s *state, c call, a answer) *state {
	if a.outcome == refused {
		return m.refuse(s, c)
	}
	if c.lease != 0 && !s.leases[c.lease] {
		return when(a.outcome == unknown, m.never(s))
	}
	next := s.clone()
	next.revision++
	r := record{value: c.value, create: next.revision, mod: next.revision, lease: c.lease}
	if old, ok := s.keys[c.key]; ok {
		r.create, r.version = old.create, old.version
	}
	r.version++
	next.keys[c.key] = r
	return m.made(s, next, a, event{key: c.key, value: c.value, lease: c.lease})
}

func (m *model) swap(s *state, c call, a answer) *state {
	same := s.keys[c.key].mod == c.expect
	switch {
	case a.outcome == differed:
		return when(!same && a.revision == s.revision, s)
	case a.outcome == unknown && !same:
		return m.never(s)
	case a.outcome == done && !same:
		return nil
	}
	return m.put(s, c, a)
}

func (m *model) remove(s *state, c call, a answer) *state {
	if _, ok := s.keys[c.key]; !ok {
		if a.outcome == unknown {
			return m.never(s)
		}
		return when(a.outcome == differed && a.revision == s.revision, s)
	}
	if a.outcome == differed {
		return nil
	}
	next := s.clone()
	next.revision++
	delete(next.keys, c.key)
	return m.made(s, next, a, event{key: c.key, gone: true})
}

// end ends a lease by revoke or expiry: it and all its keys go at once, and
// nothing else does (L6). A revoke that was refused may have been done by its
// own first try.
func (m *model) end(s *state, c call, a answer) *state {
	gone := s.attached(c.lease)
	if !s.leases[c.lease] || len(gone) == 0 && a.outcome == unknown {
		if a.outcome == unknown {
			return m.never(s)
		}
		return when(a.outcome == refused, s)
	}
	next := s.clone()
	delete(next.leases, c.lease)
	if len(gone) == 0 {
		return next
	}
	next.revision++
	for _, e := range gone {
		delete(next.keys, e.key)
	}
	if a.outcome == done && a.revision < next.revision {
		return nil
	}
	if a.outcome != unknown { // the revision of its answer need not be this one's
		a.revision = next.revision
	}
	return m.made(s, next, a, gone...)
}

// made returns the state after a call that made a revision, if the answer and
// the journal agree with that.
func (m *model) made(s, next *state, a answer, events ...event) *state {
	switch {
	case a.outcome != unknown && a.revision != next.revision:
		return nil
	case m.journal == nil || sameEvents(m.journal[next.revision], events):
		return next
	case a.outcome == unknown:
		return m.never(s)
	}
	return nil
}

// sameEvents compares the events of a revision, in which each key occurs once.
func sameEvents(a, b []event) bool {
	if len(a) != len(b) {
		return false
	}
	for _, e := range a {
		if !slices.Contains(b, e) {
			return false
		}
	}
	return true
}

func (s *state) clone() *state {
	next := &state{s.revision, maps.Clone(s.keys), maps.Clone(s.leases)}
	if next.keys == nil {
		next.keys, next.leases = map[string]record{}, map[int64]bool{}
	}
	return next
}
