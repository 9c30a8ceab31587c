package encoding

import (
	"encoding/binary"
	"maps"
	"slices"
)

// AppendBytes appends a text with its length. [Decoder.Text] and [Decoder.Bytes]
// read it.
func AppendBytes[S string | []byte](b []byte, s S) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// AppendBools appends up to eight flags as one byte, the first as its lowest bit.
func AppendBools(b []byte, flags ...bool) []byte {
	var v byte
	for i, f := range flags {
		if f {
			v |= 1 << i
		}
	}
	return append(b, v)
}

// AppendList appends the number of elements, and each with one, which must
// append at least a byte. [List] reads it.
func AppendList[T any](b []byte, list []T, one func([]byte, T) []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, v := range list {
		b = one(b, v)
	}
	return b
}

// AppendMap appends m in the order of its keys, so that equal maps have equal
// bytes. [Decoder.Map] reads it.
func AppendMap(b []byte, m map[string]string) []byte {
	if len(m) == 0 {
		return append(b, 0)
	}
	return AppendList(b, slices.Sorted(maps.Keys(m)), func(b []byte, k string) []byte {
		return AppendBytes(AppendBytes(b, k), m[k])
	})
}
