package etcd

import (
	"encoding/binary"

	"leasehold.dev/internal/api"
	"leasehold.dev/internal/mvcc"
)

// encoded returns an event as a field of a watch response, with the previous pair
// if there is one and it is wanted.
func encoded(e *api.Event, prev bool) *api.Encoded {
	if prev && e.Change().Prev != nil {
		return e.Encoded(api.EtcdFull, encodeFull)
	}
	return e.Encoded(api.EtcdPlain, encodePlain)
}

func encodePlain(e *mvcc.Event) []byte { return encodeEvent(e, false) }

func encodeFull(e *mvcc.Event) []byte { return encodeEvent(e, true) }

func encodeEvent(e *mvcc.Event, prev bool) []byte {
	kv := e.KV
	if e.Delete { // the cause is not for clients of etcd
		kv = &mvcc.KeyValue{Key: kv.Key, ModRevision: kv.ModRevision}
	}
	size := blockSize(pairSize(kv))
	if e.Delete {
		size += fieldSize(1)
	}
	if prev {
		size += blockSize(pairSize(e.Prev))
	}
	b := make([]byte, 0, blockSize(size))
	b = binary.AppendUvarint(append(b, bytes11), uint64(size))
	if e.Delete {
		b = appendField(b, varint1, 1)
	}
	b = appendPair(b, bytes2, kv)
	if prev {
		b = appendPair(b, bytes3, e.Prev)
	}
	return b
}
