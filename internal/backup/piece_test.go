package backup

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"leasehold.dev/internal/encoding"
)

func somePiece() Piece {
	return Piece{
		History: History{0xabc, 0xdef}, Previous: Place{41, 3},
		Marks: []Mark{{43, 1_000}, {44, 900}},
		Entries: []Entry{
			{Term: 3, Data: []byte("one")}, {Term: 4}, {Term: 4, Type: 2, Data: []byte("three")},
		},
	}
}

// TestPiece checks that a decoded piece equals the encoded one, and states which entries it
// contains.
func TestPiece(t *testing.T) {
	t.Parallel()
	p := somePiece()
	got, err := DecodePiece(p.Encode())
	if err != nil || !reflect.DeepEqual(got, p) {
		t.Fatalf("%+v, %v", got, err)
	}
	if last := got.Last(); last != (Place{44, 4}) {
		t.Errorf("it ends at %v", last)
	}
	for index, want := range map[uint64]uint64{40: 0, 41: 3, 42: 3, 43: 4, 44: 4, 45: 0} {
		if term, ok := got.TermAt(index); term != want || ok != (want != 0) {
			t.Errorf("term of %d: %d, %v", index, term, ok)
		}
	}
}

// TestPieceDamage checks that changing, removing or adding any byte of a piece is detected.
func TestPieceDamage(t *testing.T) {
	t.Parallel()
	p := somePiece()
	whole := p.Encode()
	for i := range whole {
		b := bytes.Clone(whole)
		b[i] ^= 1
		_, err := DecodePiece(b)
		if !errors.Is(err, ErrNotWhole) && !errors.Is(err, encoding.ErrNewer) {
			t.Errorf("byte %d changed: %v", i, err)
		}
		if _, err := DecodePiece(whole[:i]); !errors.Is(err, ErrNotWhole) {
			t.Errorf("cut after %d bytes: %v", i, err)
		}
	}
	if _, err := DecodePiece(append(bytes.Clone(whole), 0)); !errors.Is(err, ErrNotWhole) {
		t.Errorf("a byte more: %v", err)
	}
	newer := append([]byte("leasehold log 2\n"), whole[len(pieceMagic):]...)
	if _, err := DecodePiece(newer); !errors.Is(err, encoding.ErrNewer) {
		t.Errorf("of a newer release: %v", err)
	}
}

// TestPieceTimes checks that a piece without valid times for its entries is rejected, even though
// its checksum is correct.
func TestPieceTimes(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*Piece){
		"no mark":        func(p *Piece) { p.Marks = nil },
		"not the last":   func(p *Piece) { p.Marks = p.Marks[:1] },
		"after the last": func(p *Piece) { p.Marks[1].Index++ },
		"out of order":   func(p *Piece) { p.Marks[0].Index = 44 },
		"before it":      func(p *Piece) { p.Marks[0].Index = 41 },
		"no entry":       func(p *Piece) { p.Entries = nil },
	} {
		p := somePiece()
		change(&p)
		if _, err := DecodePiece(p.Encode()); !errors.Is(err, ErrNotWhole) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestManifest(t *testing.T) {
	t.Parallel()
	for _, h := range []History{{0xfedc, 0}, {0xfedc, 0xba}} {
		if got, err := ReadManifest(Manifest(h)); got != h || err != nil {
			t.Errorf("%v, %v", got, err)
		}
	}
	for text, want := range map[string]string{
		"":   "unexpected end",
		"{}": `the format in leasehold.json is ""`,
		`{"format":"leasehold backups 2","cluster":"1"}`:                `"leasehold backups 2"`,
		`{"format":"leasehold backups 1","cluster":"x1"}`:               "x1",
		`{"format":"leasehold backups 1","cluster":"1","restore":"x2"}`: "x2",
	} {
		_, err := ReadManifest([]byte(text))
		if !errors.Is(err, ErrNotWhole) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
