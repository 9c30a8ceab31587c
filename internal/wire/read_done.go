package wire

import pb "leasehold.dev/api/leasehold/v1"

// Outcomes of the parts of transactions, each in one piece of memory.
type (
	// txnDone has room for the outcomes of most.
	txnDone struct {
		response  pb.TxnResponse
		ticket    pb.Ticket
		responses [2]*pb.OpResponse
	}
	drawDone struct {
		op   pb.OpResponse
		body pb.OpResponse_DrawToken
	}
)

func (r *reader) txnResponse(d *txnDone, room *pb.Header) {
	if r.depth++; r.depth > maxDepth {
		r.odd = true
	}
	m := &d.response
	for outer := r.enter(); r.more(outer); {
		switch r.field() {
		case 1<<3 | typeBytes:
			r.header(&m.Header, room)
		case 2<<3 | typeVarint:
			m.Succeeded = r.flag()
		case 3<<3 | typeBytes:
			if m.Responses == nil {
				m.Responses = d.responses[:0]
			}
			m.Responses = append(m.Responses, r.opResponse())
		case 4<<3 | typeBytes:
			if r.once(m.Ticket == nil) {
				m.Ticket = &d.ticket
				r.ticket(m.Ticket)
			}
		default:
			r.odd = true
		}
	}
	r.depth--
}

func (r *reader) ticket(m *pb.Ticket) {
	for outer := r.enter(); r.more(outer); {
		switch r.field() {
		case 1<<3 | typeVarint:
			m.State = pb.Ticket_State(r.int())
		case 2<<3 | typeVarint:
			m.CreateRevision = r.int()
		case 3<<3 | typeBytes:
			m.After = r.bytes()
		case 4<<3 | typeVarint:
			m.Why = pb.Event_Why(r.int())
		case 5<<3 | typeVarint:
			m.Lease = r.int()
		default:
			r.odd = true
		}
	}
}

func (r *reader) opResponse() *pb.OpResponse {
	var m *pb.OpResponse
	for outer := r.enter(); r.more(outer); {
		k := r.field()
		if !r.once(m == nil) {
			break
		}
		switch k {
		case 7<<3 | typeVarint:
			m = &pb.OpResponse{Response: &pb.OpResponse_Revoke{Revoke: r.int()}}
		case 8<<3 | typeVarint:
			d := &drawDone{}
			m, d.body.DrawToken = &d.op, r.varint()
			m.Response = &d.body
		default:
			m = r.done(k)
		}
	}
	if m == nil {
		return &pb.OpResponse{}
	}
	return m
}

// done reads what an operation did.
func (r *reader) done(key uint64) *pb.OpResponse {
	switch key {
	case 1<<3 | typeBytes:
		d := &joined[pb.OpResponse, pb.OpResponse_Put, pb.PutResponse]{}
		d.message.Response, d.wrapper.Put = &d.wrapper, &d.body
		r.putResponse(&d.body, nil)
		return &d.message
	case 2<<3 | typeBytes:
		d := &joined[pb.OpResponse, pb.OpResponse_DeleteRange, pb.DeleteResponse]{}
		d.message.Response, d.wrapper.DeleteRange = &d.wrapper, &d.body
		r.deleteResponse(&d.body, nil)
		return &d.message
	case 3<<3 | typeBytes:
		d := &joined[pb.OpResponse, pb.OpResponse_ReadRange, rangeDone]{}
		d.message.Response, d.wrapper.ReadRange = &d.wrapper, &d.body.response
		r.rangeResponse(&d.body, nil)
		return &d.message
	case 4<<3 | typeBytes:
		d := &txnDone{}
		r.txnResponse(d, nil)
		return &pb.OpResponse{Response: &pb.OpResponse_Txn{Txn: &d.response}}
	case 5<<3 | typeBytes:
		d := &grantDone{}
		r.grantResponse(d, nil)
		return &pb.OpResponse{Response: &pb.OpResponse_Grant{Grant: &d.response}}
	default:
		r.odd = true
		return nil
	}
}
