package encoding

import (
	"encoding/binary"
	"slices"
)

// Decoder takes fields off the front of what the Append functions wrote. The
// first error sticks: every later field is zero and nothing is left, so callers
// look at Err once. It is not safe for concurrent use.
type Decoder struct {
	b       []byte
	at      int     // how much of b is taken: moving b itself would cost write barriers
	counted int     // elements of all lists so far
	format  *Format // of b
	version byte    // of b
	err     error
}

// Err returns the first error, if there was one.
func (d *Decoder) Err() error { return d.err }

// Len returns how many bytes are left.
func (d *Decoder) Len() int { return len(d.b) - d.at }

// Peek returns the next byte and leaves it; 0 if none is left.
func (d *Decoder) Peek() byte {
	if d.at == len(d.b) {
		return 0
	}
	return d.b[d.at]
}

// Rest takes all that is left, without copying it.
func (d *Decoder) Rest() []byte {
	b := d.b[d.at:]
	d.at = len(d.b)
	return b
}

// End returns the first error; bytes that are left are one.
func (d *Decoder) End() error {
	if d.Len() > 0 {
		d.Fail("bytes follow the end")
	}
	return d.err
}

// Uvarint takes what binary.AppendUvarint wrote.
func (d *Decoder) Uvarint() uint64 {
	if d.at < len(d.b) && d.b[d.at] < 0x80 { // most numbers are small
		d.at++
		return uint64(d.b[d.at-1])
	}
	v, n := binary.Uvarint(d.b[d.at:])
	if n <= 0 {
		d.Fail("varint")
		return 0
	}
	d.at += n
	return v
}

// Varint takes what binary.AppendVarint wrote.
func (d *Decoder) Varint() int64 {
	v, n := binary.Varint(d.b[d.at:])
	if n <= 0 {
		d.Fail("varint")
		return 0
	}
	d.at += n
	return v
}

// Uint64 takes what binary.BigEndian.AppendUint64 wrote.
func (d *Decoder) Uint64() uint64 {
	if d.Len() < 8 {
		d.Fail("number")
		return 0
	}
	v := binary.BigEndian.Uint64(d.b[d.at:])
	d.at += 8
	return v
}

// Byte takes one byte.
func (d *Decoder) Byte() byte {
	if d.at == len(d.b) {
		d.Fail("byte")
		return 0
	}
	v := d.b[d.at]
	d.at++
	return v
}

// View takes what AppendBytes wrote, nil if it is empty, without copying it.
func (d *Decoder) View() []byte {
	if v := d.view(); len(v) > 0 {
		return v
	}
	return nil
}

func (d *Decoder) view() []byte {
	n := d.Uvarint()
	if n > uint64(d.Len()) {
		d.Fail("length")
		return nil
	}
	v := d.b[d.at:][:n:n]
	d.at += int(n)
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

// Count takes a number of elements. Each element takes at least one byte of its own, in
// whatever it lies, so all elements together are at most as many as there are bytes. That
// bounds the memory that corrupt numbers can make the caller allocate.
func (d *Decoder) Count() int {
	n := d.Uvarint()
	if n > uint64(d.Len()) || n > uint64(len(d.b)-d.counted) {
		d.Fail("count")
		return 0
	}
	d.counted += int(n)
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

// Map takes what AppendMap wrote, nil if it is empty. Keys that are not in order are an error.
func (d *Decoder) Map() map[string]string {
	n := d.Count()
	if n == 0 {
		return nil
	}
	m := make(map[string]string, n)
	last := ""
	for i := range n {
		k := d.Text()
		if i > 0 && k <= last {
			d.Fail("keys out of order")
			return nil
		}
		m[k], last = d.Text(), k
	}
	return m
}
