package wire

import pb "leasehold.dev/api/leasehold/v1"

func readServerMessage(b []byte, m *pb.ServerMessage) (ok bool) {
	m.Reset()
	if n := count(b); n > 0 {
		m.Responses = make([]*pb.Response, 0, n)
	}
	r := reader{b: b, end: len(b)}
	for r.more(r.end) {
		switch r.field() {
		case 1<<3 | typeBytes:
			q, ok := readResponse(r.view())
			r.odd = r.odd || !ok
			m.Responses = append(m.Responses, q)
		default:
			r.odd = true
		}
	}
	return !r.odd
}

func readResponse(b []byte) (m *pb.Response, ok bool) {
	r := reader{b: b, end: len(b)}
	if m = r.response(); !r.odd {
		return m, true
	}
	m = &pb.Response{}
	return m, standardPart.Unmarshal(b, m) == nil
}

// joinedAnswer is a response with its body and its header, in one piece of memory.
type joinedAnswer[Wrapper, Body any] struct {
	joined[pb.Response, Wrapper, Body]
	header pb.Header
}

func (r *reader) response() *pb.Response {
	var id uint64
	var more bool
	var m *pb.Response
	for r.more(r.end) {
		switch k := r.field(); k {
		case 1<<3 | typeVarint:
			id = r.varint()
		case 2<<3 | typeVarint:
			more = r.flag()
		default:
			if r.once(m == nil) {
				m = r.answer(k)
			}
		}
	}
	if m == nil {
		m = &pb.Response{}
	}
	m.Id, m.More = id, more
	return m
}

// answer reads a body, and returns the response that it is of.
func (r *reader) answer(key uint64) *pb.Response {
	switch key {
	case 4<<3 | typeBytes:
		a := &joinedAnswer[pb.Response_Put, pb.PutResponse]{}
		a.message.Body, a.wrapper.Put = &a.wrapper, &a.body
		r.putResponse(&a.body, &a.header)
		return &a.message
	case 5<<3 | typeBytes:
		a := &joinedAnswer[pb.Response_DeleteRange, pb.DeleteResponse]{}
		a.message.Body, a.wrapper.DeleteRange = &a.wrapper, &a.body
		r.deleteResponse(&a.body, &a.header)
		return &a.message
	case 6<<3 | typeBytes:
		a := &joinedAnswer[pb.Response_ReadRange, rangeDone]{}
		a.message.Body, a.wrapper.ReadRange = &a.wrapper, &a.body.response
		r.rangeResponse(&a.body, &a.header)
		return &a.message
	case 7<<3 | typeBytes:
		a := &joinedAnswer[pb.Response_Txn, txnDone]{}
		a.message.Body, a.wrapper.Txn = &a.wrapper, &a.body.response
		r.txnResponse(&a.body, &a.header)
		return &a.message
	case 8<<3 | typeBytes:
		a := &joinedAnswer[pb.Response_Grant, grantDone]{}
		a.message.Body, a.wrapper.Grant = &a.wrapper, &a.body.response
		r.grantResponse(&a.body, &a.header)
		return &a.message
	case 11<<3 | typeBytes:
		a := &joinedAnswer[pb.Response_Watch, pb.WatchResponse]{}
		a.message.Body, a.wrapper.Watch = &a.wrapper, &a.body
		r.watchResponse(&a.body, &a.header)
		return &a.message
	default:
		r.odd = true
		return nil
	}
}
