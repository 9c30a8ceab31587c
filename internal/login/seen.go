package login

import (
	"hash/maphash"
	"strings"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// maxSeen limits the number of tokens that a member remembers.
const maxSeen = 1 << 16

// seen caches data about the most recently used tokens. A token is looked up by its hash with a
// secret seed, and must then be equal, so that the duration of a lookup reveals nothing about other
// tokens.
type seen[T any] struct {
	seed maphash.Seed
	*simplelru.LRU[uint64, *entry[T]]
}

// entry is a token with the cached data about it.
type entry[T any] struct {
	token string
	known T
}

func newSeen[T any]() seen[T] {
	return seen[T]{maphash.MakeSeed(), newLRU[uint64, *entry[T]](maxSeen)}
}

// find returns the cached data about a token that is being used, for modification, or nil.
func (s *seen[T]) find(token string) *T {
	if x, ok := s.Get(maphash.String(s.seed, token)); ok && x.token == token {
		return &x.known
	}
	return nil
}

// note caches data about a token, and evicts expired tokens, starting with the least recently used
// one, until it finds one that has not expired. It may evict the new token, too.
func (s *seen[T]) note(token string, known T, over func(*T) bool) {
	// The token may be part of a much longer header.
	s.Add(maphash.String(s.seed, token), &entry[T]{strings.Clone(token), known})
	for {
		_, last, ok := s.GetOldest()
		if !ok || !over(&last.known) {
			return
		}
		s.RemoveOldest()
	}
}
