package wire

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
)

// writer encodes a message backward, because the length of a part must precede the part and is
// known only after the part has been written. Without a buffer, it only computes the length.
type writer struct {
	b      []byte // nil to only compute the length
	i      int    // position of the first byte written; without a buffer, the negated length
	strict bool   // check strings even if there is no buffer
	// odd is set if the standard encoder must handle the message. The standard encoder then either
	// returns the error or handles a case that is not supported here.
	odd bool
}

// varintSize returns the length of v as a varint.
func varintSize(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }

func (w *writer) varint(v uint64) {
	if v < 0x80 {
		w.i--
		if w.b != nil {
			w.b[w.i] = byte(v)
		}
		return
	}
	w.i -= varintSize(v)
	if w.b == nil {
		return
	}
	i := w.i
	for ; v >= 0x80; i++ {
		w.b[i] = byte(v) | 0x80
		v >>= 7
	}
	w.b[i] = byte(v)
}

// set writes a number, even if it is 0.
func (w *writer) set(field int, v uint64) {
	w.varint(v)
	w.varint(uint64(field)<<3 | typeVarint)
}

// number writes a number unless it is 0.
func (w *writer) number(field int, v uint64) {
	if v != 0 {
		w.set(field, v)
	}
}

func (w *writer) flag(field int, v bool) {
	if v {
		w.set(field, 1)
	}
}

// fixed64 writes one number in a packed list.
func (w *writer) fixed64(v uint64) {
	w.i -= 8
	if w.b != nil {
		binary.LittleEndian.PutUint64(w.b[w.i:], v)
	}
}

// setBytes writes a byte field, even if it is empty.
func (w *writer) setBytes(field int, v []byte) {
	w.i -= len(v)
	if w.b != nil {
		copy(w.b[w.i:], v)
	}
	w.varint(uint64(len(v)))
	w.varint(uint64(field)<<3 | typeBytes)
}

// bytes writes a byte field unless it is empty.
func (w *writer) bytes(field int, v []byte) {
	if len(v) > 0 {
		w.setBytes(field, v)
	}
}

// text writes a string unless it is empty.
func (w *writer) text(field int, v string) {
	if v != "" {
		w.setText(field, v)
	}
}

// setText writes a string, even if it is empty.
func (w *writer) setText(field int, v string) {
	w.i -= len(v)
	if w.b != nil {
		copy(w.b[w.i:], v)
	}
	if w.b != nil || w.strict {
		w.odd = w.odd || !utf8.ValidString(v)
	}
	w.varint(uint64(len(v)))
	w.varint(uint64(field)<<3 | typeBytes)
}

// close writes the tag and the length of a nested message that has just been written. The message
// ends before end.
//
// The code around each call (the nil check, the loop over a list, the check for unknown fields) is
// repeated in the generated code. A helper could take a function that writes the part. But then the
// writer would escape to the heap, and each message would cost one allocation to compute its length
// and another to write it.
func (w *writer) close(field, end int) {
	w.varint(uint64(end - w.i))
	w.varint(uint64(field)<<3 | typeBytes)
}

// standard writes a message using the standard encoder.
func (w *writer) standard(m proto.Message) {
	end, n := w.i, proto.Size(m)
	w.i -= n
	switch {
	case w.strict:
		_, err := proto.Marshal(m)
		w.odd = w.odd || err != nil
		return
	case w.b == nil:
		return
	}
	b, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(w.b[w.i:w.i:end], m)
	w.odd = w.odd || err != nil || len(b) != n
}

// known sets odd if a message has unknown fields.
func (w *writer) known(m proto.Message) {
	if w.b != nil && len(m.ProtoReflect().GetUnknown()) > 0 {
		w.odd = true
	}
}
