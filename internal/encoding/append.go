package encoding

import (
	"encoding/binary"
	"maps"
	"slices"
)

// AppendBytes appends the length of s, then s. [Decoder.Text] and [Decoder.Bytes] read it.
func AppendBytes[S string | []byte](b []byte, s S) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// Flag returns flag if on is true, and 0 otherwise. The flags of a record are combined into one
// byte, which [Decoder.Flags] reads.
func Flag(on bool, flag byte) byte {
	if on {
		return flag
	}
	return 0
}

// AppendList appends the number of elements, then calls one to append each element. one must append
// at least one byte. [List] reads the list.
func AppendList[T any](b []byte, list []T, one func([]byte, T) []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, v := range list {
		b = one(b, v)
	}
	return b
}

// AppendMap appends m in key order, so that equal maps have equal encodings. [Decoder.Map] reads
// it.
func AppendMap(b []byte, m map[string]string) []byte {
	if len(m) == 0 {
		return append(b, 0)
	}
	return AppendList(b, slices.Sorted(maps.Keys(m)), func(b []byte, k string) []byte {
		return AppendBytes(AppendBytes(b, k), m[k])
	})
}
