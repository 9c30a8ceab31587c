package encoding

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"math"
	"slices"
	"testing"
)

var errCorrupt = errors.New("test: corrupt")

// form is one of everything that can be encoded.
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

// What was appended is taken as it was, no part of the bytes is kept, and any of it that is
// missing, or anything more, is an error.
func TestRoundTrip(t *testing.T) {
	for _, f := range forms() {
		whole := f.append(nil)
		b := bytes.Clone(whole)
		d := NewDecoder(b, errCorrupt)
		got := take(&d)
		clear(b)
		if err := d.End(); err != nil || !got.equal(f) {
			t.Errorf("%+v, %v, want %+v", got, err, f)
		}
		for n := range whole {
			d := NewDecoder(whole[:n], errCorrupt)
			if take(&d); !errors.Is(d.Err(), errCorrupt) || d.Len() != 0 {
				t.Errorf("%d of %d bytes: %v, %d left", n, len(whole), d.Err(), d.Len())
			}
		}
		d = NewDecoder(append(whole, 0), errCorrupt)
		if take(&d); d.Err() != nil || !errors.Is(d.End(), errCorrupt) {
			t.Errorf("with a byte more: %v", d.Err())
		}
	}
}

// The first error is the one that is told, and nothing can be read after it.
func TestFirstErrorSticks(t *testing.T) {
	d := NewDecoder([]byte{1, 2, 3}, errCorrupt)
	d.Fail("first")
	d.Fail("second")
	if take(&d); d.Err().Error() != "test: corrupt: first" || d.Err() != d.End() {
		t.Errorf("error %v", d.Err())
	}
}

// A count or a length that is larger than what is left allocates nothing.
func TestHugeCount(t *testing.T) {
	huge := binary.AppendUvarint(nil, math.MaxUint64)
	for name, read := range map[string]func(*Decoder){
		"count": func(d *Decoder) { d.Count() },
		"list":  func(d *Decoder) { List(d, d.Text) },
		"map":   func(d *Decoder) { d.Map() },
		"text":  func(d *Decoder) { _ = d.Text() },
		"bytes": func(d *Decoder) { d.Bytes() },
	} {
		d := NewDecoder(huge, errCorrupt)
		if read(&d); !errors.Is(d.Err(), errCorrupt) {
			t.Errorf("%s: %v", name, d.Err())
		}
	}
}

// Flags stand in the order in which they are given.
func TestBools(t *testing.T) {
	if got := AppendBools(nil, true, false, true); !bytes.Equal(got, []byte{5}) {
		t.Errorf("flags %x", got)
	}
}

// Peek and Rest see what the next field would.
func TestPeekRest(t *testing.T) {
	d := NewDecoder([]byte{7, 8, 9}, errCorrupt)
	if d.Peek() != 7 || d.Byte() != 7 || d.Len() != 2 {
		t.Error("peek took the byte, or another")
	}
	if got := d.Rest(); !bytes.Equal(got, []byte{8, 9}) || d.Len() != 0 || d.Peek() != 0 {
		t.Errorf("the rest is %x", got)
	}
	if err := d.End(); err != nil {
		t.Error(err)
	}
}

// Equal maps have equal bytes, whatever the order in which they yield their keys.
func TestMapIsDeterministic(t *testing.T) {
	m := map[string]string{}
	for i := range 50 {
		m[string(rune('a'+i))] = "x"
	}
	want := AppendMap(nil, m)
	for range 20 {
		if !bytes.Equal(AppendMap(nil, maps.Clone(m)), want) {
			t.Fatal("the encoding of a map depends on its order")
		}
	}
}

// Goal: no bytes panic, and what is accepted encodes to something that means the same.
func FuzzDecoder(f *testing.F) {
	for _, form := range forms() {
		f.Add(form.append(nil))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		d := NewDecoder(data, errCorrupt)
		got := take(&d)
		if d.Err() != nil {
			return
		}
		d = NewDecoder(got.append(nil), errCorrupt)
		if again := take(&d); d.End() != nil || !again.equal(got) {
			t.Fatalf("%+v became %+v, %v", got, again, d.Err())
		}
	})
}
