package sample

import (
	"errors"
	"slices"
	"testing"
)

// TestPut knows all about Put but that a number below 1 is refused, and nothing of Each.
func TestPut(t *testing.T) {
	s := &Shelf{Size: 3}
	if !s.Empty() {
		t.Error("a new shelf is not empty")
	}
	for _, n := range []int{2, 1} {
		if err := s.Put(n); err != nil {
			t.Error(err)
		}
	}
	if err := s.Put(1); !errors.Is(err, ErrFull) {
		t.Error(err)
	}
	if want := []string{"put", "done", "put", "done"}; !slices.Equal(s.Log, want) || s.Books != 3 {
		t.Error(s)
	}
	if s.Empty() {
		t.Error("a full shelf is empty")
	}
}

// TestRoom knows both ends.
func TestRoom(t *testing.T) {
	s := &Shelf{Size: 5, Books: 3}
	if s.Room(9) != 2 || s.Room(1) != 1 {
		t.Error(s.Room(9), s.Room(1))
	}
}
