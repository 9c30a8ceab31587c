package transport

import (
	"errors"
	"strings"
	"testing"

	"leasehold.dev/test/virtual"
)

// note is a note as it came.
type note struct {
	from uint64
	text string
}

// Goal: a member gets notes of members that are connected, and of nobody else, and a note that it
// does not get is an error. Method: notes both ways, one to a member that is not there, one of a
// stranger who knows all IDs, and one that is too large.
func TestNote(t *testing.T) { virtual.Test(t, testNote) }

func testNote(t *testing.T) {
	a, b := pair(t, options{})
	for _, err := range []error{
		a.Note(t.Context(), 2, []byte("from a")), b.Note(t.Context(), 1, []byte("from b")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := want(t, b.noted); got != (note{1, "from a"}) {
		t.Errorf("b got %v", got)
	}
	if got := want(t, a.noted); got != (note{2, "from b"}) {
		t.Errorf("a got %v", got)
	}
	if err := a.Note(t.Context(), 3, nil); !errors.Is(err, errUnknown) {
		t.Errorf("to nobody: %v", err)
	}
	s, err := connect(t.Context(), a.url, inMemory(Way{}))
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	for name, h := range map[string]hello{
		"a stranger":        {cluster: 1, from: 2, to: 1, formats: Formats{1, 1}},
		"another cluster's": {cluster: 7, from: 2, to: 1, formats: Formats{1, 1}},
		"not for this one":  {cluster: 1, from: 2, to: 3, formats: Formats{1, 1}},
	} {
		h.process, h.incarnation = 1<<40, 102
		_, err := s.unary(h.context(t.Context(), nil), noteDesc.MethodName, &blob{data: []byte("I am b")})
		if err == nil {
			t.Errorf("the note of %s was taken", name)
		}
	}
	if err := b.Note(t.Context(), 1, make([]byte, MaxNote+1)); err == nil {
		t.Error("a large note was taken")
	}
	if err := b.Note(t.Context(), 1, []byte(strings.Repeat("x", MaxNote))); err != nil {
		t.Error(err)
	}
	if got := want(t, a.noted); got.from != 2 || len(got.text) != MaxNote {
		t.Errorf("a got %d bytes from %d", len(got.text), got.from)
	}
	never(t, "another note", a.noted)
}
