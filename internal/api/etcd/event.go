package etcd

import (
	"encoding/binary"

	"leasehold.dev/internal/api"
	"leasehold.dev/internal/mvcc"
)

// encoded returns an event, encoded as a field of a watch response. If prev is set and there is a
// previous key-value pair, the event includes it.
func encoded(e *api.Event, prev bool) *api.Encoded {
	if prev && e.Change().Prev != nil {
		return e.Encoded(api.EtcdFull, encodeFull)
	}
	return e.Encoded(api.EtcdPlain, encodePlain)
}

func encodePlain(e *mvcc.Event) []byte { return encodeEvent(e, false) }

func encodeFull(e *mvcc.Event) []byte { return encodeEvent(e, true) }

// encodedSize returns the length of encoded without encoding the event. This matters because many
// callers may be waiting for room at the same time.
func encodedSize(e *api.Event, prev bool) int {
	change := e.Change()
	return blockSize(eventSize(change, pairOf(change), prev && change.Prev != nil))
}

// pairOf returns the key-value pair that etcd clients see. It omits the cause of a delete.
func pairOf(e *mvcc.Event) *mvcc.KeyValue {
	if e.Delete {
		return &mvcc.KeyValue{Key: e.KV.Key, ModRevision: e.KV.ModRevision}
	}
	return e.KV
}

// eventSize returns the length of an event with the given pair.
func eventSize(e *mvcc.Event, kv *mvcc.KeyValue, prev bool) int {
	size := blockSize(pairSize(kv))
	if e.Delete {
		size += fieldSize(1)
	}
	if prev {
		size += blockSize(pairSize(e.Prev))
	}
	return size
}

func encodeEvent(e *mvcc.Event, prev bool) []byte {
	kv := pairOf(e)
	size := eventSize(e, kv, prev)
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
