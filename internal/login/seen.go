package login

import (
	"hash/maphash"
	"strings"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// maxSeen limits the number of tokens that a member caches.
const maxSeen = 1 << 16

// seen caches data about the most recently used tokens. A token is looked up by a hash with a
// secret seed, and is then compared in full. So the time that a lookup takes reveals nothing about
// other tokens.
type seen[T any] struct {
	seed maphash.Seed
	*simplelru.LRU[uint64, *entry[T]]
}

// entry is a token together with the cached data about it.
type entry[T any] struct {
	token string
	known T
}

func newSeen[T any]() seen[T] {
	return seen[T]{maphash.MakeSeed(), newLRU[uint64, *entry[T]](maxSeen)}
}

// find returns the cached data about a token that is being used, or nil. The caller can modify the
// data.
func (s *seen[T]) find(token string) *T {
	if x, ok := s.Get(maphash.String(s.seed, token)); ok && x.token == token {
		return &x.known
	}
	return nil
}

// note caches data about a token. It then evicts expired tokens, starting with the least recently
// used one, until it reaches a token that has not expired. It might evict even the new token.
func (s *seen[T]) note(token string, known T, over func(*T) bool) {
	// The token might be part of a much longer header, which must not be kept in memory.
	s.Add(maphash.String(s.seed, token), &entry[T]{strings.Clone(token), known})
	for {
		_, last, ok := s.GetOldest()
		if !ok || !over(&last.known) {
			return
		}
		s.RemoveOldest()
	}
}
