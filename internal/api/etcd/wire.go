package etcd

import (
	"encoding/binary"
	"math/bits"

	"leasehold.dev/internal/mvcc"
)

// The messages below are encoded by hand, because they are sent millions of times. This avoids
// reflection. Encoding by hand also lets many messages share a part that is encoded only once. A
// test compares every encoding with proto.Marshal.

// Field keys. A key is the field number times eight plus the type, which is 0 for a varint and 2
// for bytes.
const (
	varint1 = 1 << 3
	varint2 = 2 << 3
	varint3 = 3 << 3
	varint4 = 4 << 3
	varint6 = 6 << 3
	varint7 = 7 << 3

	bytes1  = 1<<3 | 2
	bytes2  = 2<<3 | 2
	bytes3  = 3<<3 | 2
	bytes5  = 5<<3 | 2
	bytes11 = 11<<3 | 2
)

// varintSize returns the length of v as a varint.
func varintSize(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }

// fieldSize returns the length of a number with its one-byte key. It returns 0 for zero, which is
// omitted.
func fieldSize(v uint64) int {
	if v == 0 {
		return 0
	}
	return 1 + varintSize(v)
}

// blockSize returns the length of n bytes together with their one-byte key and length prefix.
func blockSize(n int) int { return 1 + varintSize(uint64(n)) + n }

// appendField appends a number with its key. It does nothing if the number is zero.
func appendField(b []byte, key byte, v uint64) []byte {
	if v == 0 {
		return b
	}
	return binary.AppendUvarint(append(b, key), v)
}

// appendBytes appends a byte field. It does nothing if the field is empty.
func appendBytes[T string | []byte](b []byte, key byte, v T) []byte {
	if len(v) == 0 {
		return b
	}
	b = binary.AppendUvarint(append(b, key), uint64(len(v)))
	return append(b, v...)
}

// appendBool appends a flag with its key. It does nothing if the flag is false.
func appendBool(b []byte, key byte, v bool) []byte {
	if !v {
		return b
	}
	return append(b, key, 1)
}

// stamp is a response header.
type stamp struct {
	identity
	revision int64
	term     uint64
}

func (s stamp) size() int {
	return fieldSize(s.cluster) + fieldSize(s.member) + fieldSize(uint64(s.revision)) +
		fieldSize(s.term)
}

// append appends the header as field 1 of a response.
func (s stamp) append(b []byte) []byte {
	b = append(b, bytes1, byte(s.size())) // at most 44, so the length takes one byte
	b = appendField(b, varint1, s.cluster)
	b = appendField(b, varint2, s.member)
	b = appendField(b, varint3, uint64(s.revision))
	return appendField(b, varint4, s.term)
}

// pairSize returns the length of a KeyValue message.
func pairSize(kv *mvcc.KeyValue) int {
	n := fieldSize(uint64(kv.CreateRevision)) + fieldSize(uint64(kv.ModRevision)) +
		fieldSize(uint64(kv.Version)) + fieldSize(uint64(kv.Lease))
	if len(kv.Key) > 0 {
		n += blockSize(len(kv.Key))
	}
	if len(kv.Value) > 0 {
		n += blockSize(len(kv.Value))
	}
	return n
}

// appendPair appends a KeyValue message as the field with the given key.
func appendPair(b []byte, key byte, kv *mvcc.KeyValue) []byte {
	b = binary.AppendUvarint(append(b, key), uint64(pairSize(kv)))
	b = appendBytes(b, bytes1, kv.Key)
	b = appendField(b, varint2, uint64(kv.CreateRevision))
	b = appendField(b, varint3, uint64(kv.ModRevision))
	b = appendField(b, varint4, uint64(kv.Version))
	b = appendBytes(b, bytes5, kv.Value)
	return appendField(b, varint6, uint64(kv.Lease))
}
