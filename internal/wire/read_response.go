package wire

import pb "leasehold.dev/leaseholdpb"

func readServerMessage(b []byte, m *pb.ServerMessage) (ok bool) {
	m.Reset()
	if n := count(b); n > 0 {
		m.Responses = make([]*pb.Response, 0, n)
	}
	r := reader{b: b, end: len(b)}
	for r.more() {
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

// Responses with their bodies, each in one piece of memory.
type (
	putAnswer struct {
		response pb.Response
		body     pb.Response_Put
		put      pb.PutResponse
		header   pb.Header
	}
	deleteAnswer struct {
		response pb.Response
		body     pb.Response_Delete
		delete   pb.DeleteResponse
		header   pb.Header
	}
	rangeAnswer struct {
		response pb.Response
		body     pb.Response_Range
		read     rangeDone
		header   pb.Header
	}
	txnAnswer struct {
		response pb.Response
		body     pb.Response_Txn
		txn      txnDone
		header   pb.Header
	}
	grantAnswer struct {
		response pb.Response
		body     pb.Response_Grant
		grant    grantDone
		header   pb.Header
	}
	watchAnswer struct {
		response pb.Response
		body     pb.Response_Watch
		watch    pb.WatchResponse
		header   pb.Header
	}
)

func (r *reader) response() *pb.Response {
	var id uint64
	var more bool
	var m *pb.Response
	for r.more() {
		switch k := r.field(); k {
		case 1<<3 | typeVarint:
			id = r.varint()
		case 2<<3 | typeVarint:
			more = r.flag()
		default:
			if r.once(m == nil) {
				end := r.enter()
				m = r.answer(k)
				r.leave(end)
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
		a := &putAnswer{}
		a.response.Body, a.body.Put = &a.body, &a.put
		r.putResponse(&a.put, &a.header)
		return &a.response
	case 5<<3 | typeBytes:
		a := &deleteAnswer{}
		a.response.Body, a.body.Delete = &a.body, &a.delete
		r.deleteResponse(&a.delete, &a.header)
		return &a.response
	case 6<<3 | typeBytes:
		a := &rangeAnswer{}
		a.response.Body, a.body.Range = &a.body, &a.read.response
		r.rangeResponse(&a.read, &a.header)
		return &a.response
	case 7<<3 | typeBytes:
		a := &txnAnswer{}
		a.response.Body, a.body.Txn = &a.body, &a.txn.response
		r.txnResponse(&a.txn, &a.header)
		return &a.response
	case 8<<3 | typeBytes:
		a := &grantAnswer{}
		a.response.Body, a.body.Grant = &a.body, &a.grant.response
		r.grantResponse(&a.grant, &a.header)
		return &a.response
	case 11<<3 | typeBytes:
		a := &watchAnswer{}
		a.response.Body, a.body.Watch = &a.body, &a.watch
		r.watchResponse(&a.watch, &a.header)
		return &a.response
	default:
		r.odd = true
		return nil
	}
}
