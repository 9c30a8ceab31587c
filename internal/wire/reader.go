package wire

import (
	"bytes"
	"encoding/binary"
	"slices"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// maxDepth is the maximum nesting depth of messages within messages of the same type.
const maxDepth = 40

// standardPart is the standard decoder for part of a message.
var standardPart = proto.UnmarshalOptions{RecursionLimit: protowire.DefaultRecursionLimit - 1}

// Wire types. Each field's tag consists of its number and its wire type.
const (
	typeVarint = 0
	typeBytes  = 2
)

// reader decodes a message. It copies all data that it returns.
type reader struct {
	b     []byte
	i     int    // position of the next byte
	end   int    // end of the current message
	depth int    // nesting depth of transactions
	last  []byte // the previous key; never modified
	// odd is set if the standard decoder must handle the message. That means that the message is
	// malformed, or contains an unknown or duplicate field.
	odd bool
}

// more reports whether the current message has another field. If not, the reader returns to the
// enclosing message, which ends at outer.
func (r *reader) more(outer int) bool {
	if r.i < r.end && !r.odd {
		return true
	}
	r.end = outer
	return false
}

// field reads the tag of a field, which contains its number and type.
func (r *reader) field() uint64 { return r.varint() }

func (r *reader) varint() uint64 {
	if r.i < r.end && r.b[r.i] < 0x80 {
		r.i++
		return uint64(r.b[r.i-1])
	}
	return r.longVarint()
}

func (r *reader) longVarint() uint64 {
	v, n := binary.Uvarint(r.b[r.i:r.end])
	if n <= 0 {
		r.odd = true
		return 0
	}
	r.i += n
	return v
}

func (r *reader) flag() bool { return r.varint() != 0 }

// view reads bytes without copying them.
func (r *reader) view() []byte {
	n := r.varint()
	if n > uint64(r.end-r.i) {
		r.odd = true
		return nil
	}
	r.i += int(n)
	return r.b[r.i-int(n) : r.i]
}

func (r *reader) bytes() []byte {
	v := r.view()
	b := make([]byte, len(v))
	copy(b, v)
	return b
}

// key reads a key. Consecutive equal keys, as in a lock's transactions, share one copy.
func (r *reader) key() []byte {
	v := r.view()
	if !bytes.Equal(v, r.last) || r.last == nil {
		r.last = make([]byte, len(v))
		copy(r.last, v)
	}
	return r.last
}

func (r *reader) text() string {
	v := r.view()
	if !utf8.Valid(v) {
		r.odd = true
		return ""
	}
	return string(v)
}

// readFixed64 appends the numbers in a packed list.
func readFixed64[T int64 | uint64](r *reader, list []T) []T {
	v := r.view()
	if len(v)%8 != 0 {
		r.odd = true
		return list
	}
	list = slices.Grow(list, len(v)/8)
	for ; len(v) > 0; v = v[8:] {
		list = append(list, T(binary.LittleEndian.Uint64(v)))
	}
	return list
}

// enter begins a nested message. It returns the end of the enclosing message, to be passed to more.
func (r *reader) enter() (outer int) {
	outer = r.end
	n := r.varint()
	if n > uint64(outer-r.i) {
		r.odd = true
		return outer
	}
	r.end = r.i + int(n)
	return outer
}

// once reports whether a field that must not be repeated occurs for the first time. If not, it sets
// odd.
func (r *reader) once(first bool) bool {
	r.odd = r.odd || !first
	return first
}

// count estimates the number of parts at the beginning of a message.
func count(b []byte) int {
	r, n := reader{b: b, end: len(b)}, 0
	for r.more(r.end) && r.field() == 1<<3|typeBytes {
		r.view()
		n++
	}
	return n
}
