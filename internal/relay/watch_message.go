package relay

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
)

// watchMessage is an encoded pb.WatchResponse.
type watchMessage struct {
	bytes    []byte
	revision int64 // unless it is a fragment, all events up to this revision have been sent
	first    int64 // revision of its first event; 0 if it has none
	fragment bool
}

// Field numbers in stream.proto and store.proto.
const (
	fieldResponses = 1
	fieldMore      = 2
	fieldWatch     = 11 // of both requests and responses
	fieldHeader    = 1
	fieldEvents    = 2
	fieldFragment  = 3
)

// parseWatchMessage decodes the relevant fields of a pb.WatchResponse. It returns false if b cannot
// be decoded.
func parseWatchMessage(b []byte) (t watchMessage, ok bool) {
	t.bytes = b
	ok = scan(b, func(n protowire.Number, v uint64, field []byte) bool {
		switch {
		case n == fieldHeader && field != nil:
			var h pb.Header
			if proto.Unmarshal(field, &h) != nil {
				return false
			}
			t.revision = h.Revision
		case n == fieldEvents && field != nil && t.first == 0:
			var e pb.Event
			if proto.Unmarshal(field, &e) != nil {
				return false
			}
			t.first = e.Kv.GetModRevision()
		case n == fieldFragment && field == nil:
			t.fragment = v != 0
		}
		return true
	})
	return t, ok
}

// after returns the message without the events up to the given revision, or nil if there is nothing
// left. A message without events is a progress notification. It is kept even if its revision is not
// new.
func (t watchMessage) after(revision int64) ([]byte, error) {
	switch {
	case t.revision < revision, t.revision == revision && t.first > 0:
		return nil, nil
	case t.first == 0 || t.first > revision:
		return t.bytes, nil
	}
	m := new(pb.WatchResponse)
	if err := proto.Unmarshal(t.bytes, m); err != nil {
		return nil, err
	}
	m.Events = slices.DeleteFunc(m.Events, func(e *pb.Event) bool {
		return e.Kv.GetModRevision() <= revision
	})
	if len(m.Events) == 0 {
		return nil, nil
	}
	return proto.Marshal(m)
}

// head encodes the part of a pb.ServerMessage that precedes a pb.WatchResponse of the given size.
// The pb.WatchResponse is part of the response to a request.
func head(request uint64, size int) []byte {
	inner := protowire.AppendVarint([]byte{fieldID << 3}, request)
	inner = append(inner, fieldMore<<3, 1, fieldWatch<<3|byte(protowire.BytesType))
	inner = protowire.AppendVarint(inner, uint64(size))
	outer := []byte{fieldResponses<<3 | byte(protowire.BytesType)}
	return append(protowire.AppendVarint(outer, uint64(len(inner)+size)), inner...)
}

// response contains the relevant fields of a pb.Response.
type response struct {
	id    uint64
	more  bool
	watch []byte // nil if the response is not for a watch
}

// parseResponses calls f with each response in a pb.ServerMessage. It returns false if the message
// cannot be decoded.
func parseResponses(message []byte, f func(response)) bool {
	return scan(message, func(n protowire.Number, _ uint64, b []byte) bool {
		if n != fieldResponses || b == nil {
			return true
		}
		var r response
		ok := scan(b, func(n protowire.Number, v uint64, field []byte) bool {
			switch {
			case n == fieldID && field == nil:
				r.id = v
			case n == fieldMore && field == nil:
				r.more = v != 0
			case n == fieldWatch:
				r.watch = field
			}
			return true
		})
		if ok {
			f(r)
		}
		return ok
	})
}

// hasWatches reports whether a pb.ClientMessage contains watch requests.
func hasWatches(message []byte) (has bool) {
	scan(message, func(n protowire.Number, _ uint64, request []byte) bool {
		return n != fieldRequests || scan(request, func(n protowire.Number, _ uint64, _ []byte) bool {
			has = has || n == fieldWatch
			return !has
		})
	})
	return has
}

// scan is like eachField, but for messages that can contain fields of any type. It calls f only for
// varints and bytes.
func scan(b []byte, f func(n protowire.Number, v uint64, bytes []byte) bool) bool {
	for len(b) > 0 {
		_, kind, size := protowire.ConsumeField(b)
		if size < 0 {
			return false
		}
		known := kind == protowire.VarintType || kind == protowire.BytesType
		if known && !eachField(b[:size], f) {
			return false
		}
		b = b[size:]
	}
	return true
}
