package wire

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "leasehold.dev/api/leasehold/v1"
)

// maxDepth is how deep transactions may lie in others here.
const maxDepth = 40

// standardPart decodes a part of a message.
var standardPart = proto.UnmarshalOptions{RecursionLimit: protowire.DefaultRecursionLimit - 1}

func readClientMessage(b []byte, m *pb.ClientMessage) (ok bool) {
	m.Reset()
	if n := count(b); n > 0 {
		m.Requests = make([]*pb.Request, 0, n)
	}
	r := reader{b: b, end: len(b)}
	for r.more(r.end) {
		switch r.field() {
		case 1<<3 | typeBytes:
			q, ok := readRequest(r.view())
			r.odd = r.odd || !ok
			m.Requests = append(m.Requests, q)
		case 2<<3 | typeBytes:
			if r.once(m.Session == nil) {
				m.Session = &pb.SessionRef{}
				r.sessionRef(m.Session)
			}
		case 3<<3 | typeVarint:
			m.Settled = r.varint()
		default:
			r.odd = true
		}
	}
	return !r.odd
}

func readRequest(b []byte) (m *pb.Request, ok bool) {
	r := reader{b: b, end: len(b)}
	if m = r.request(); !r.odd {
		return m, true
	}
	m = &pb.Request{}
	return m, standardPart.Unmarshal(b, m) == nil
}

func (r *reader) sessionRef(m *pb.SessionRef) {
	for outer := r.enter(); r.more(outer); {
		switch r.field() {
		case 1<<3 | typeVarint:
			m.Id = r.varint()
		case 2<<3 | typeVarint:
			m.Nonce = r.varint()
		default:
			r.odd = true
		}
	}
}

// joined is a message with its body and what wraps that, in one piece of memory.
type joined[Message, Wrapper, Body any] struct {
	message Message
	wrapper Wrapper
	body    Body
}

func (r *reader) request() *pb.Request {
	var head struct {
		id, number uint64
		timeout    int64
		trace      string
	}
	var m *pb.Request
	for r.more(r.end) {
		switch k := r.field(); k {
		case 1<<3 | typeVarint:
			head.id = r.varint()
		case 2<<3 | typeVarint:
			head.timeout = r.int()
		case 20<<3 | typeVarint:
			head.number = r.varint()
		case 25<<3 | typeBytes:
			head.trace = r.text()
		case 3<<3 | typeVarint:
			if r.once(m == nil) {
				m = &pb.Request{Body: &pb.Request_Cancel{Cancel: r.varint()}}
			}
		default:
			if r.once(m == nil) {
				m = r.call(k)
			}
		}
	}
	if m == nil {
		m = &pb.Request{}
	}
	m.Id, m.Number, m.TimeoutMs, m.Traceparent = head.id, head.number, head.timeout, head.trace
	return m
}

// call reads a body, and returns the request that it is of.
func (r *reader) call(key uint64) *pb.Request {
	switch key {
	case 4<<3 | typeBytes:
		c := &joined[pb.Request, pb.Request_Put, pb.PutRequest]{}
		c.message.Body, c.wrapper.Put = &c.wrapper, &c.body
		r.putRequest(&c.body)
		return &c.message
	case 5<<3 | typeBytes:
		c := &joined[pb.Request, pb.Request_DeleteRange, pb.DeleteRequest]{}
		c.message.Body, c.wrapper.DeleteRange = &c.wrapper, &c.body
		r.deleteRequest(&c.body)
		return &c.message
	case 6<<3 | typeBytes:
		c := &joined[pb.Request, pb.Request_ReadRange, pb.RangeRequest]{}
		c.message.Body, c.wrapper.ReadRange = &c.wrapper, &c.body
		r.rangeRequest(&c.body)
		return &c.message
	case 7<<3 | typeBytes:
		c := &joined[pb.Request, pb.Request_Txn, txn]{}
		c.message.Body, c.wrapper.Txn = &c.wrapper, &c.body.request
		r.txnRequest(&c.body)
		return &c.message
	case 8<<3 | typeBytes:
		c := &joined[pb.Request, pb.Request_Grant, pb.GrantRequest]{}
		c.message.Body, c.wrapper.Grant = &c.wrapper, &c.body
		r.grantRequest(&c.body)
		return &c.message
	default:
		r.odd = true
		return nil
	}
}

func (r *reader) putRequest(m *pb.PutRequest) {
	for outer := r.enter(); r.more(outer); {
		switch r.field() {
		case 1<<3 | typeBytes:
			m.Key = r.key()
		case 2<<3 | typeBytes:
			m.Value = r.bytes()
		case 3<<3 | typeVarint:
			m.Lease = r.int()
		case 4<<3 | typeVarint:
			m.PrevKv = r.flag()
		case 5<<3 | typeVarint:
			m.IgnoreValue = r.flag()
		case 6<<3 | typeVarint:
			m.IgnoreLease = r.flag()
		case 7<<3 | typeVarint:
			m.TtlMs = r.int()
		case 8<<3 | typeBytes:
			if r.once(m.LeaseRef == nil) {
				m.LeaseRef = r.leaseRef()
			}
		default:
			r.odd = true
		}
	}
}

func (r *reader) deleteRequest(m *pb.DeleteRequest) {
	for outer := r.enter(); r.more(outer); {
		switch r.field() {
		case 1<<3 | typeBytes:
			m.Key = r.key()
		case 2<<3 | typeBytes:
			m.RangeEnd = r.key()
		case 3<<3 | typeVarint:
			m.PrevKv = r.flag()
		default:
			r.odd = true
		}
	}
}

func (r *reader) rangeRequest(m *pb.RangeRequest) {
	for outer := r.enter(); r.more(outer); {
		switch r.field() {
		case 1<<3 | typeBytes:
			m.Key = r.key()
		case 2<<3 | typeBytes:
			m.RangeEnd = r.key()
		case 3<<3 | typeVarint:
			m.Limit = r.int()
		case 4<<3 | typeVarint:
			m.Revision = r.int()
		case 5<<3 | typeVarint:
			m.Serializable = r.flag()
		case 6<<3 | typeVarint:
			m.KeysOnly = r.flag()
		case 7<<3 | typeVarint:
			m.CountOnly = r.flag()
		case 8<<3 | typeBytes:
			if r.once(m.Cache == nil) {
				m.Cache = r.leaseRef()
			}
		default:
			r.odd = true
		}
	}
}

func (r *reader) leaseRef() *pb.LeaseRef {
	m := &pb.LeaseRef{}
	for outer := r.enter(); r.more(outer); {
		switch r.field() {
		case 1<<3 | typeVarint:
			m.Id = r.int()
		case 2<<3 | typeVarint:
			m.Token = r.varint()
		case 3<<3 | typeBytes:
			m.Name = r.text()
		default:
			r.odd = true
		}
	}
	return m
}

func (r *reader) grantRequest(m *pb.GrantRequest) {
	for outer := r.enter(); r.more(outer); {
		switch r.field() {
		case 1<<3 | typeVarint:
			m.Id = r.int()
		case 2<<3 | typeVarint:
			m.TtlMs = r.int()
		case 3<<3 | typeBytes:
			m.Name = r.text()
		case 4<<3 | typeBytes:
			m.Owner = r.text()
		case 6<<3 | typeBytes:
			m.RequestId = r.text()
		case 7<<3 | typeVarint:
			m.LockDelayMs = r.int()
		case 8<<3 | typeVarint:
			m.AtExpiry = pb.AtExpiry(r.int())
		case 10<<3 | typeVarint:
			m.Resumable = r.flag()
		case 12<<3 | typeBytes:
			m.Principal = r.text()
		default:
			r.odd = true
		}
	}
}
