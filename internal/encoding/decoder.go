package encoding

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// Decoder takes fields off the front of what the Append functions wrote. The
// first error sticks: every later field is zero and nothing is left, so callers
// look at Err once. It is not safe for concurrent use.
type Decoder struct {
	b       []byte
	corrupt error // what every error wraps
	err     error
}

// NewDecoder returns a decoder of b, whose errors wrap corrupt. It keeps b and
// does not change it.
func NewDecoder(b []byte, corrupt error) Decoder { return Decoder{b: b, corrupt: corrupt} }

// Err returns the first error, if there was one.
func (d *Decoder) Err() error { return d.err }

// Fail makes what was wrong the error, unless there is one already.
func (d *Decoder) Fail(what string) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s", d.corrupt, what)
	}
	d.b = nil
}

// Len returns how many bytes are left.
func (d *Decoder) Len() int { return len(d.b) }

// Peek returns the next byte and leaves it; 0 if none is left.
func (d *Decoder) Peek() byte {
	if len(d.b) == 0 {
		return 0
	}
	return d.b[0]
}

// Rest takes all that is left, without copying it.
func (d *Decoder) Rest() []byte {
	b := d.b
	d.b = nil
	return b
}

// End returns the first error; bytes that are left are one.
func (d *Decoder) End() error {
	if len(d.b) > 0 {
		d.Fail("bytes follow the end")
	}
	return d.err
}

// Uvarint takes what binary.AppendUvarint wrote.
func (d *Decoder) Uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.Fail("varint")
		return 0
	}
	d.b = d.b[n:]
	return v
}

// Varint takes what binary.AppendVarint wrote.
func (d *Decoder) Varint() int64 {
	v, n := binary.Varint(d.b)
	if n <= 0 {
		d.Fail("varint")
		return 0
	}
	d.b = d.b[n:]
	return v
}

// Uint64 takes what binary.BigEndian.AppendUint64 wrote.
func (d *Decoder) Uint64() uint64 {
	if len(d.b) < 8 {
		d.Fail("number")
		return 0
	}
	v := binary.BigEndian.Uint64(d.b)
	d.b = d.b[8:]
	return v
}

// Byte takes one byte; of AppendBools, for one.
func (d *Decoder) Byte() byte {
	if len(d.b) == 0 {
		d.Fail("byte")
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

// view takes what AppendBytes wrote, without copying it.
func (d *Decoder) view() []byte {
	n := d.Uvarint()
	if n > uint64(len(d.b)) {
		d.Fail("length")
		return nil
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

// Text takes what AppendBytes wrote.
func (d *Decoder) Text() string { return string(d.view()) }

// Bytes takes what AppendBytes wrote, nil if it is empty. It is a copy, so that
// a small value does not keep a whole entry alive.
func (d *Decoder) Bytes() []byte {
	if v := d.view(); len(v) > 0 {
		return slices.Clone(v)
	}
	return nil
}

// Count takes a number of elements, which take at least a byte each: that bounds
// what a corrupt one can make the caller allocate.
func (d *Decoder) Count() int {
	n := d.Uvarint()
	if n > uint64(len(d.b)) {
		d.Fail("count")
		return 0
	}
	return int(n)
}

// List takes what AppendList wrote, each element with one; nil if there is none,
// or after an error.
func List[T any](d *Decoder, one func() T) []T {
	n := d.Count()
	if n == 0 {
		return nil
	}
	list := make([]T, n)
	for i := range list {
		if list[i] = one(); d.err != nil {
			return nil
		}
	}
	return list
}

// Map takes what AppendMap wrote, nil if it is empty.
func (d *Decoder) Map() map[string]string {
	n := d.Count()
	if n == 0 {
		return nil
	}
	m := make(map[string]string, n)
	for range n {
		k := d.Text()
		m[k] = d.Text()
	}
	return m
}
