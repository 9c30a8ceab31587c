package login

import (
	"hash/maphash"
	"strings"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// maxSeen bounds the tokens that a member remembers.
const maxSeen = 1 << 16

// seen remembers what is known of tokens that were checked, of those that were used last. A token
// is found by its hash with a seed that nobody knows, and has to be equal then: where the search
// ends tells a stranger nothing of another token.
type seen[T any] struct {
	seed maphash.Seed
	*simplelru.LRU[uint64, *entry[T]]
}

// entry is a token, and what is known of it.
type entry[T any] struct {
	token string
	known T
}

func newSeen[T any]() seen[T] {
	return seen[T]{maphash.MakeSeed(), newLRU[uint64, *entry[T]](maxSeen)}
}

// find returns what is known of a token that is used now, to be changed, or nil.
func (s *seen[T]) find(token string) *T {
	if x, ok := s.Get(maphash.String(s.seed, token)); ok && x.token == token {
		return &x.known
	}
	return nil
}

// note remembers what is known of a token, and forgets tokens that are over, from the one that was
// used longest ago on until one is not over. That may be this one, too.
func (s *seen[T]) note(token string, known T, over func(*T) bool) {
	// The token may be a piece of a much longer header.
	s.Add(maphash.String(s.seed, token), &entry[T]{strings.Clone(token), known})
	for {
		_, last, ok := s.GetOldest()
		if !ok || !over(&last.known) {
			return
		}
		s.RemoveOldest()
	}
}
