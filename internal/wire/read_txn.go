package wire

import pb "leasehold.dev/api/leasehold/v1"

// Parts of transactions, each in one piece of memory.
type (
	// txn has room for the lists of most.
	txn struct {
		request pb.TxnRequest
		compare [1]*pb.Compare
		then    [2]*pb.Op
		other   [1]*pb.Op
	}
	compare struct {
		compare        pb.Compare
		version        pb.Compare_Version
		createRevision pb.Compare_CreateRevision
		modRevision    pb.Compare_ModRevision
		lease          pb.Compare_Lease
		leaseAlive     pb.Compare_LeaseAlive
	}
)

func (r *reader) txnRequest(t *txn) {
	if r.depth++; r.depth > maxDepth {
		r.odd = true
	}
	m := &t.request
	for outer := r.enter(); r.more(outer); {
		switch r.field() {
		case 1<<3 | typeBytes:
			if m.Compare == nil {
				m.Compare = t.compare[:0]
			}
			m.Compare = append(m.Compare, r.compare())
		case 2<<3 | typeBytes:
			if m.Success == nil {
				m.Success = t.then[:0]
			}
			m.Success = append(m.Success, r.op())
		case 3<<3 | typeBytes:
			if m.Failure == nil {
				m.Failure = t.other[:0]
			}
			m.Failure = append(m.Failure, r.op())
		case 4<<3 | typeBytes:
			if r.once(m.Wait == nil) {
				m.Wait = r.wait()
			}
		default:
			r.odd = true
		}
	}
	r.depth--
}

func (r *reader) wait() *pb.Wait {
	m := &pb.Wait{}
	for outer := r.enter(); r.more(outer); {
		switch r.field() {
		case 1<<3 | typeBytes:
			m.Key = r.key()
		case 2<<3 | typeBytes:
			m.Prefix = r.key()
		case 3<<3 | typeVarint:
			m.Permits = r.int()
		case 4<<3 | typeBytes:
			m.Beside = r.bytes()
		default:
			r.odd = true
		}
	}
	return m
}

func (r *reader) compare() *pb.Compare {
	c := &compare{}
	m := &c.compare
	for outer := r.enter(); r.more(outer); {
		k := r.field()
		if k >= 4<<3 {
			if r.once(m.Target == nil) {
				r.target(k, c)
			}
			continue
		}
		switch k {
		case 1<<3 | typeVarint:
			m.Relation = pb.Compare_Relation(r.int())
		case 2<<3 | typeBytes:
			m.Key = r.key()
		case 3<<3 | typeBytes:
			m.RangeEnd = r.key()
		default:
			r.odd = true
		}
	}
	return m
}

// target reads what a condition is about.
func (r *reader) target(key uint64, c *compare) {
	m := &c.compare
	switch key {
	case 4<<3 | typeVarint:
		c.version.Version = r.int()
		m.Target = &c.version
	case 5<<3 | typeVarint:
		c.createRevision.CreateRevision = r.int()
		m.Target = &c.createRevision
	case 6<<3 | typeVarint:
		c.modRevision.ModRevision = r.int()
		m.Target = &c.modRevision
	case 7<<3 | typeBytes:
		m.Target = &pb.Compare_Value{Value: r.bytes()}
	case 8<<3 | typeVarint:
		c.lease.Lease = r.int()
		m.Target = &c.lease
	case 9<<3 | typeVarint:
		c.leaseAlive.LeaseAlive = r.int()
		m.Target = &c.leaseAlive
	case 10<<3 | typeBytes:
		m.Target = &pb.Compare_NameToken{NameToken: r.nameToken()}
	default:
		r.odd = true
	}
}

func (r *reader) nameToken() *pb.NameToken {
	m := &pb.NameToken{}
	for outer := r.enter(); r.more(outer); {
		switch r.field() {
		case 1<<3 | typeBytes:
			m.Name = r.text()
		case 2<<3 | typeVarint:
			m.Token = r.varint()
		default:
			r.odd = true
		}
	}
	return m
}

func (r *reader) op() *pb.Op {
	var m *pb.Op
	for outer := r.enter(); r.more(outer); {
		k := r.field()
		if !r.once(m == nil) {
			break
		}
		switch k {
		case 6<<3 | typeBytes:
			m = &pb.Op{Op: &pb.Op_Renew{Renew: r.leaseRef()}}
		case 7<<3 | typeBytes:
			m = &pb.Op{Op: &pb.Op_Revoke{Revoke: r.leaseRef()}}
		default:
			m = r.operation(k)
		}
	}
	if m == nil {
		return &pb.Op{}
	}
	return m
}

func (r *reader) operation(key uint64) *pb.Op {
	switch key {
	case 1<<3 | typeBytes:
		o := &joined[pb.Op, pb.Op_Put, pb.PutRequest]{}
		o.message.Op, o.wrapper.Put = &o.wrapper, &o.body
		r.putRequest(&o.body)
		return &o.message
	case 2<<3 | typeBytes:
		o := &joined[pb.Op, pb.Op_DeleteRange, pb.DeleteRequest]{}
		o.message.Op, o.wrapper.DeleteRange = &o.wrapper, &o.body
		r.deleteRequest(&o.body)
		return &o.message
	case 3<<3 | typeBytes:
		o := &joined[pb.Op, pb.Op_ReadRange, pb.RangeRequest]{}
		o.message.Op, o.wrapper.ReadRange = &o.wrapper, &o.body
		r.rangeRequest(&o.body)
		return &o.message
	case 4<<3 | typeBytes:
		t := &txn{}
		r.txnRequest(t)
		return &pb.Op{Op: &pb.Op_Txn{Txn: &t.request}}
	case 5<<3 | typeBytes:
		m := &pb.GrantRequest{}
		r.grantRequest(m)
		return &pb.Op{Op: &pb.Op_Grant{Grant: m}}
	case 8<<3 | typeBytes:
		o := &joined[pb.Op, pb.Op_DrawToken, pb.DrawTokenRequest]{}
		o.message.Op, o.wrapper.DrawToken = &o.wrapper, &o.body
		for outer := r.enter(); r.more(outer); {
			r.odd = true
		}
		return &o.message
	default:
		r.odd = true
		return nil
	}
}
