package encoding

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
)

var errCorrupt = errors.New("test: corrupt")

// format is a format whose newest version is 2.
var format = Format{Name: "a test", Version: 2, Corrupt: errCorrupt}

// form has one field of each type that can be encoded.
type form struct {
	unsigned, fixed uint64
	signed          int64
	flags           byte
	text            string
	raw             []byte
	texts           []string
	labels          map[string]string
}

func (f *form) append(b []byte) []byte {
	b = binary.AppendUvarint(b, f.unsigned)
	b = binary.AppendVarint(b, f.signed)
	b = binary.BigEndian.AppendUint64(b, f.fixed)
	b = append(b, f.flags)
	b = AppendBytes(AppendBytes(b, f.text), f.raw)
	return AppendMap(AppendList(b, f.texts, AppendBytes[string]), f.labels)
}

func take(d *Decoder) *form {
	return &form{
		unsigned: d.Uvarint(), signed: d.Varint(), fixed: d.Uint64(), flags: d.Byte(),
		text: d.Text(), raw: d.Bytes(), texts: List(d, d.Text), labels: d.Map(),
	}
}

func (f *form) equal(g *form) bool {
	return f.unsigned == g.unsigned && f.signed == g.signed && f.fixed == g.fixed &&
		f.flags == g.flags && f.text == g.text && bytes.Equal(f.raw, g.raw) &&
		slices.Equal(f.texts, g.texts) && maps.Equal(f.labels, g.labels)
}

func forms() []*form {
	return []*form{
		{},
		{
			unsigned: math.MaxUint64, fixed: math.MaxUint64, signed: math.MinInt64, flags: 5,
			text: "text", raw: []byte{0, 1}, texts: []string{"", "b", "a"},
			labels: map[string]string{"k": "v", "": "", "a": "b"},
		},
	}
}

// TestRoundTrip checks that decoding returns what was encoded and keeps no reference to the input.
// Missing or extra bytes are an error.
func TestRoundTrip(t *testing.T) {
	for _, f := range forms() {
		whole := f.append(nil)
		b := bytes.Clone(whole)
		d := format.Decoder(1, b)
		got := take(&d)
		clear(b)
		if err := d.End(); err != nil || !got.equal(f) {
			t.Errorf("%+v, %v, want %+v", got, err, f)
		}
		for n := range whole {
			d := format.Decoder(1, whole[:n])
			if take(&d); !errors.Is(d.Err(), errCorrupt) || d.Len() != 0 {
				t.Errorf("first %d of %d bytes: %v, %d left", n, len(whole), d.Err(), d.Len())
			}
		}
		d = format.Decoder(1, append(whole, 0))
		if take(&d); d.Err() != nil || !errors.Is(d.End(), errCorrupt) {
			t.Errorf("with an extra byte: %v", d.Err())
		}
	}
}

// TestFirstErrorSticks checks that the first error is the one reported, and that nothing can be
// read after it.
func TestFirstErrorSticks(t *testing.T) {
	d := format.Decoder(1, []byte{1, 2, 3})
	d.Fail("first")
	d.Fail("second")
	d.Unknown("third", 3)
	if take(&d); d.Err().Error() != "test: corrupt: a test: first" || d.Err() != d.End() {
		t.Errorf("error: %v", d.Err())
	}
}

// TestHugeCount checks that nothing is allocated for a count or length that exceeds the remaining
// bytes.
func TestHugeCount(t *testing.T) {
	huge := binary.AppendUvarint(nil, math.MaxUint64)
	for name, read := range map[string]func(*Decoder){
		"count": func(d *Decoder) { d.Count() },
		"list":  func(d *Decoder) { List(d, d.Text) },
		"map":   func(d *Decoder) { d.Map() },
		"text":  func(d *Decoder) { _ = d.Text() },
		"bytes": func(d *Decoder) { d.Bytes() },
	} {
		d := format.Decoder(1, huge)
		if read(&d); !errors.Is(d.Err(), errCorrupt) {
			t.Errorf("%s: %v", name, d.Err())
		}
	}
}

// TestNestedCounts checks that nested lists cannot have more elements in total than there are
// bytes. Otherwise a few bytes could consume a lot of memory.
func TestNestedCounts(t *testing.T) {
	const size = 1000
	b := bytes.Repeat(binary.AppendUvarint(nil, size-100), size/2)
	d := format.Decoder(1, b)
	var counted int
	for d.Err() == nil {
		counted += d.Count()
	}
	if counted > len(b) || !errors.Is(d.Err(), errCorrupt) {
		t.Errorf("%d elements from %d bytes, %v", counted, len(b), d.Err())
	}
}

// TestMapOutOfOrder checks that unsorted or duplicate map keys are an error, so that equal maps
// have equal bytes.
func TestMapOutOfOrder(t *testing.T) {
	for _, keys := range []string{"ba", "aa"} {
		b := []byte{2, 1, keys[0], 0, 1, keys[1], 0}
		d := format.Decoder(1, b)
		if m := d.Map(); !errors.Is(d.Err(), errCorrupt) {
			t.Errorf("%q: %v", m, d.Err())
		}
	}
}

// TestUnknown checks that known values are accepted and unknown ones are rejected. An unknown value
// comes from a newer release, and the error names the value and this release's version. A value
// that counts from 1 is never 0.
func TestUnknown(t *testing.T) {
	for name, c := range map[string]struct {
		b    byte
		take func(*Decoder) byte
		want error
		says string
	}{
		"flags":        {3, func(d *Decoder) byte { return d.Flags("x", 7) }, nil, ""},
		"unknown flag": {11, func(d *Decoder) byte { return d.Flags("x", 7) }, ErrNewer, "flags of x 8"},
		"true":         {1, func(d *Decoder) byte { return Flag(d.Bool("x"), 1) }, nil, ""},
		"no bool":      {2, func(d *Decoder) byte { return Flag(d.Bool("x"), 1) }, ErrNewer, "x 2"},
		"choice":       {3, func(d *Decoder) byte { return d.Choice("x", 3) }, nil, ""},
		"no choice":    {4, func(d *Decoder) byte { return d.Choice("x", 3) }, ErrNewer, "x 4"},
		"kind": {9, func(d *Decoder) byte {
			d.Unknown("kind", uint64(d.Byte()))
			return 0
		}, ErrNewer, "kind 9"},
		"kind 0": {0, func(d *Decoder) byte {
			d.Unknown("kind", uint64(d.Byte()))
			return 0
		}, errCorrupt, "kind 0"},
	} {
		d := format.Decoder(1, []byte{c.b, 5})
		got := c.take(&d)
		if c.want == nil {
			if d.Err() != nil || got != c.b || d.Len() != 1 {
				t.Errorf("%s: %d, %v", name, got, d.Err())
			}
			continue
		}
		if err := d.Err(); !errors.Is(err, c.want) || got != 0 || d.Len() != 0 ||
			!strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "a test") {
			t.Errorf("%s: %d, %v, %d left", name, got, err, d.Len())
		}
		if errors.Is(d.Err(), ErrNewer) && !strings.Contains(d.Err().Error(), "format version 2") {
			t.Errorf("%s: %v", name, d.Err())
		}
	}
}

// TestHeader checks the header, which is the version of the bytes. Version 0 is invalid, and a
// version that is too high comes from a newer release.
func TestHeader(t *testing.T) {
	for version, want := range []error{errCorrupt, nil, nil, ErrNewer} {
		d := format.Open([]byte{byte(version), 7})
		if !errors.Is(d.Err(), want) || int(d.Version()) != version || d.Err() == nil && d.Byte() != 7 {
			t.Errorf("version %d: %v", version, d.Err())
		}
	}
	d := format.Open(nil)
	if !errors.Is(d.Err(), errCorrupt) {
		t.Errorf("without a version: %v", d.Err())
	}
}

// TestPeekRest checks that Peek and Rest return what will be read next.
func TestPeekRest(t *testing.T) {
	d := format.Decoder(1, []byte{7, 8, 9})
	if d.Peek() != 7 || d.Byte() != 7 || d.Len() != 2 {
		t.Error("Peek read the byte, or returned a wrong one")
	}
	if got := d.Rest(); !bytes.Equal(got, []byte{8, 9}) || d.Len() != 0 || d.Peek() != 0 {
		t.Errorf("Rest: %x", got)
	}
	if err := d.End(); err != nil {
		t.Error(err)
	}
}

// TestMapIsDeterministic checks that equal maps have equal bytes regardless of iteration order.
func TestMapIsDeterministic(t *testing.T) {
	m := map[string]string{}
	for i := range 50 {
		m[string(rune('a'+i))] = "x"
	}
	want := AppendMap(nil, m)
	for range 20 {
		if !bytes.Equal(AppendMap(nil, maps.Clone(m)), want) {
			t.Fatal("the encoding of a map depends on the iteration order")
		}
	}
}

// FuzzDecoder checks that no input causes a panic, and that accepted input encodes to bytes with
// the same meaning.
func FuzzDecoder(f *testing.F) {
	for _, form := range forms() {
		f.Add(form.append(nil))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d := format.Decoder(1, data)
		got := take(&d)
		if d.Err() != nil {
			return
		}
		d = format.Decoder(1, got.append(nil))
		if again := take(&d); d.End() != nil || !again.equal(got) {
			t.Fatalf("%+v became %+v, %v", got, again, d.Err())
		}
	})
}
