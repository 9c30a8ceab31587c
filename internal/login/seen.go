package login

import (
	"container/list"
	"hash/maphash"
	"strings"
)

// maxSeen bounds the tokens that a member remembers.
const maxSeen = 1 << 16

// seen remembers what is known of tokens that were checked, of those that were used last. A token
// is found by its hash with a seed that nobody knows, and has to be equal then: where the search
// ends tells a stranger nothing of another token.
type seen[T any] struct {
	seed maphash.Seed
	at   map[uint64]*list.Element
	uses *list.List // of *entry[T], the one that was used last first
}

// entry is a token, and what is known of it.
type entry[T any] struct {
	hash  uint64
	token string
	known T
}

func newSeen[T any]() seen[T] {
	return seen[T]{
		seed: maphash.MakeSeed(), at: make(map[uint64]*list.Element), uses: list.New(),
	}
}

// find returns what is known of a token that is used now, to be changed, or nil.
func (s *seen[T]) find(token string) *T {
	e := s.at[maphash.String(s.seed, token)]
	if e == nil {
		return nil
	}
	if x := e.Value.(*entry[T]); x.token == token {
		s.uses.MoveToFront(e)
		return &x.known
	}
	return nil
}

// note remembers what is known of a token, and forgets the tokens that were used longest ago as
// long as they are too many, or are over. That may be this one, too.
func (s *seen[T]) note(token string, known T, over func(*T) bool) {
	hash := maphash.String(s.seed, token)
	if e := s.at[hash]; e != nil { // the same or, hardly ever, one of the same hash
		s.uses.Remove(e)
	}
	// The token may be a piece of a much longer header.
	s.at[hash] = s.uses.PushFront(&entry[T]{hash, strings.Clone(token), known})
	for e := s.uses.Back(); e != nil; e = s.uses.Back() {
		last := e.Value.(*entry[T])
		if len(s.at) <= maxSeen && !over(&last.known) {
			return
		}
		s.uses.Remove(e)
		delete(s.at, last.hash)
	}
}
