package etcd

import (
	"google.golang.org/grpc/mem"

	"leasehold.dev/internal/api"
)

// shareAbove is the minimum size, in bytes, of events that are sent without copying them. Copying a
// smaller event is cheaper than sending another buffer.
const shareAbove = 4 << 10

// watchFrame encodes a pb.WatchResponse with events.
type watchFrame struct {
	stamp
	id       int64
	prev     bool
	fragment bool
	events   []*api.Event
}

// headSize returns the encoded length of everything except the events.
func (f *watchFrame) headSize() int {
	n := blockSize(f.stamp.size()) + fieldSize(uint64(f.id))
	if f.fragment {
		n += fieldSize(1)
	}
	return n
}

// Size returns the encoded length of the message. listen.Answers calls it.
func (f *watchFrame) Size() int {
	n := f.headSize()
	for _, e := range f.events {
		n += encodedSize(e, f.prev)
	}
	return n
}

// fits returns the number of events, at least one, that fit into a fragment of less than limit
// bytes.
func (f *watchFrame) fits(events []*api.Event, limit int) int {
	f.fragment = true
	size := f.headSize()
	for i, e := range events {
		size += encodedSize(e, f.prev)
		if i > 0 && size >= limit {
			return i
		}
	}
	return len(events)
}

// buffers implements frame. Small events are copied after the head or the preceding large event.
// Large events are shared by all responses.
func (f *watchFrame) buffers() mem.BufferSlice {
	room, large := f.headSize(), 0
	for _, e := range f.events {
		if n := encodedSize(e, f.prev); n < shareAbove {
			room += n
		} else {
			large++
		}
	}
	out := make(mem.BufferSlice, 0, 1+2*large)
	b := f.stamp.append(make([]byte, 0, room))
	b = appendField(b, varint2, uint64(f.id))
	b = appendBool(b, varint7, f.fragment)
	for _, e := range f.events {
		enc := encoded(e, f.prev)
		if len(enc.Bytes) < shareAbove {
			b = append(b, enc.Bytes...)
			continue
		}
		if len(b) > 0 {
			out = append(out, mem.SliceBuffer(b))
			b = b[len(b):]
		}
		out = append(out, enc.Buffer)
	}
	if len(b) > 0 {
		out = append(out, mem.SliceBuffer(b))
	}
	return out
}
