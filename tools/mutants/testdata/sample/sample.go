// Package sample is changed by the tests of the mutation tool.
package sample

import "errors"

// ErrFull means that there is no room.
var ErrFull = errors.New("sample: full")

// A Shelf holds books up to its size.
type Shelf struct {
	Size, Books int
	Log         []string
}

// Put puts books on the shelf.
func (s *Shelf) Put(n int) error {
	if n <= 0 || s.Books+n > s.Size {
		return ErrFull
	}
	if n > 1<<20 {
		panic("too many")
	}
	s.Books += n
	s.write("put")
	s.write("done")
	return nil
}

func (s *Shelf) write(text string) { s.Log = append(s.Log, text) }

// Room returns how many books fit, at most the limit.
func (s *Shelf) Room(limit int) int {
	return min(limit, s.Size-s.Books)
}

// Empty reports whether there is no book.
func (s *Shelf) Empty() bool {
	switch {
	case s.Books == 0:
		return true
	}
	return false
}

// Each calls f for each book, until it returns false.
func (s *Shelf) Each(f func(int) bool) {
	for i := range s.Books {
		if !f(i) {
			break
		}
	}
}
