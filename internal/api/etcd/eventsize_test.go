package etcd

import (
	"testing"

	"leasehold.dev/internal/api"
	"leasehold.dev/internal/mvcc"
)

// TestSizeDoesNotEncode: how long a response with events is can be told without encoding them, as
// thousands may wait for room before they are.
func TestSizeDoesNotEncode(t *testing.T) {
	kv := &mvcc.KeyValue{Key: "k", Value: make([]byte, 1<<20), ModRevision: 7, Version: 2}
	for _, change := range []*mvcc.Event{
		{KV: kv}, {KV: kv, Prev: kv}, {KV: kv, Delete: true}, {KV: kv, Prev: kv, Delete: true},
	} {
		for _, prev := range []bool{false, true} {
			f := &watchFrame{id: 5, prev: prev, events: []*api.Event{api.NewEvent(change)}}
			size, made := f.Size(), false
			f.events[0].Encoded(api.EtcdPlain, func(e *mvcc.Event) []byte {
				made = true
				return encodePlain(e)
			})
			if !made {
				t.Error("it is encoded already")
			}
			if got := f.buffers().Len(); got != size {
				t.Errorf("%d bytes, said %d", got, size)
			}
		}
	}
}
