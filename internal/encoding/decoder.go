package encoding

import (
	"encoding/binary"
	"slices"
)

// Decoder reads fields in the order in which the Append functions wrote them. After the first
// error, all fields are zero and no bytes are left, so callers need to check Err only once. A
// Decoder is not safe for concurrent use.
type Decoder struct {
	b       []byte
	at      int     // bytes of b read so far; advancing b itself would cost write barriers
	counted int     // number of elements in all lists so far
	format  *Format // format of b
	version byte    // version of b
	err     error
}

// Err returns the first error, if any.
func (d *Decoder) Err() error { return d.err }

// Len returns the number of unread bytes.
func (d *Decoder) Len() int { return len(d.b) - d.at }

// Peek returns the next byte without reading it, or 0 if there is none.
func (d *Decoder) Peek() byte {
	if d.at == len(d.b) {
		return 0
	}
	return d.b[d.at]
}

// Rest returns all remaining bytes, without copying them.
func (d *Decoder) Rest() []byte {
	b := d.b[d.at:]
	d.at = len(d.b)
	return b
}

// End returns the first error. Unread bytes are an error.
func (d *Decoder) End() error {
	if d.Len() > 0 {
		d.Fail("trailing bytes")
	}
	return d.err
}

// Uvarint reads a number written by binary.AppendUvarint.
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

// Varint reads a number written by binary.AppendVarint.
func (d *Decoder) Varint() int64 {
	v, n := binary.Varint(d.b[d.at:])
	if n <= 0 {
		d.Fail("varint")
		return 0
	}
	d.at += n
	return v
}

// Uint64 reads a number written by binary.BigEndian.AppendUint64.
func (d *Decoder) Uint64() uint64 {
	if d.Len() < 8 {
		d.Fail("number")
		return 0
	}
	v := binary.BigEndian.Uint64(d.b[d.at:])
	d.at += 8
	return v
}

// Byte reads one byte.
func (d *Decoder) Byte() byte {
	if d.at == len(d.b) {
		d.Fail("byte")
		return 0
	}
	v := d.b[d.at]
	d.at++
	return v
}

// View reads bytes written by AppendBytes, without copying them. It returns nil if there are none.
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

// Text reads a string written by AppendBytes.
func (d *Decoder) Text() string { return string(d.view()) }

// Bytes reads bytes written by AppendBytes. It returns nil if there are none. It copies the bytes,
// so that a small value does not keep an entire entry alive.
func (d *Decoder) Bytes() []byte {
	if v := d.view(); len(v) > 0 {
		return slices.Clone(v)
	}
	return nil
}

// Count reads a number of elements. Each element takes at least one byte, so the total number of
// elements cannot exceed the number of bytes. This limits how much memory a corrupt count can make
// the caller allocate.
func (d *Decoder) Count() int {
	n := d.Uvarint()
	if n > uint64(d.Len()) || n > uint64(len(d.b)-d.counted) {
		d.Fail("count")
		return 0
	}
	d.counted += int(n)
	return int(n)
}

// List reads a list written by AppendList, calling one for each element. It returns nil if the list
// is empty or there was an error.
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

// Map reads a map written by AppendMap. It returns nil if the map is empty. It is an error if the
// keys are out of order.
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
