package wire

import pb "leasehold.dev/api/leasehold/v1"

// header reads a header into room, or into new memory if that is nil, unless there was one.
func (r *reader) header(to **pb.Header, room *pb.Header) {
	if !r.once(*to == nil) {
		return
	}
	if room == nil {
		room = &pb.Header{}
	}
	*to = room
	for outer := r.enter(); r.more(outer); {
		switch r.field() {
		case 1<<3 | typeVarint:
			room.ClusterId = r.varint()
		case 2<<3 | typeVarint:
			room.MemberId = r.varint()
		case 3<<3 | typeVarint:
			room.Revision = r.int()
		case 4<<3 | typeVarint:
			room.Term = r.varint()
		default:
			r.odd = true
		}
	}
}

func (r *reader) keyValue(m *pb.KeyValue) *pb.KeyValue {
	for outer := r.enter(); r.more(outer); {
		switch r.field() {
		case 1<<3 | typeBytes:
			m.Key = r.key()
		case 2<<3 | typeBytes:
			m.Value = r.bytes()
		case 3<<3 | typeVarint:
			m.CreateRevision = r.int()
		case 4<<3 | typeVarint:
			m.ModRevision = r.int()
		case 5<<3 | typeVarint:
			m.Version = r.int()
		case 6<<3 | typeVarint:
			m.Lease = r.int()
		default:
			r.odd = true
		}
	}
	return m
}

// pair reads a pair, unless there was one.
func (r *reader) pair(to **pb.KeyValue) {
	if r.once(*to == nil) {
		*to = r.keyValue(&pb.KeyValue{})
	}
}

func (r *reader) putResponse(m *pb.PutResponse, room *pb.Header) {
	for outer := r.enter(); r.more(outer); {
		switch r.field() {
		case 1<<3 | typeBytes:
			r.header(&m.Header, room)
		case 2<<3 | typeBytes:
			r.pair(&m.PrevKv)
		default:
			r.odd = true
		}
	}
}

func (r *reader) deleteResponse(m *pb.DeleteResponse, room *pb.Header) {
	for outer := r.enter(); r.more(outer); {
		switch r.field() {
		case 1<<3 | typeBytes:
			r.header(&m.Header, room)
		case 2<<3 | typeVarint:
			m.Deleted = r.int()
		case 3<<3 | typeBytes:
			m.PrevKvs = append(m.PrevKvs, r.keyValue(&pb.KeyValue{}))
		default:
			r.odd = true
		}
	}
}

// rangeDone is the outcome of a read, with room for one pair.
type rangeDone struct {
	response pb.RangeResponse
	pair     pb.KeyValue
	pairs    [1]*pb.KeyValue
}

func (r *reader) rangeResponse(d *rangeDone, room *pb.Header) {
	m := &d.response
	for outer := r.enter(); r.more(outer); {
		switch r.field() {
		case 1<<3 | typeBytes:
			r.header(&m.Header, room)
		case 2<<3 | typeBytes:
			if m.Kvs == nil {
				d.pairs[0] = r.keyValue(&d.pair)
				m.Kvs = d.pairs[:]
			} else {
				m.Kvs = append(m.Kvs, r.keyValue(&pb.KeyValue{}))
			}
		case 3<<3 | typeVarint:
			m.More = r.flag()
		case 4<<3 | typeVarint:
			m.Count = r.int()
		case 5<<3 | typeVarint:
			m.CacheTerm = r.varint()
		default:
			r.odd = true
		}
	}
}

// grantDone is the outcome of a grant.
type grantDone struct {
	response pb.GrantResponse
	lease    pb.Lease
}

func (r *reader) grantResponse(d *grantDone, room *pb.Header) {
	m := &d.response
	for outer := r.enter(); r.more(outer); {
		switch r.field() {
		case 1<<3 | typeBytes:
			r.header(&m.Header, room)
		case 2<<3 | typeBytes:
			if r.once(m.Lease == nil) {
				m.Lease = &d.lease
				r.lease(m.Lease)
			}
		case 3<<3 | typeBytes:
			m.Secret = r.bytes()
		case 4<<3 | typeVarint:
			m.Existed = r.flag()
		default:
			r.odd = true
		}
	}
}

func (r *reader) lease(m *pb.Lease) {
	for outer := r.enter(); r.more(outer); {
		switch r.field() {
		case 1<<3 | typeVarint:
			m.Id = r.int()
		case 2<<3 | typeVarint:
			m.Token = r.varint()
		case 3<<3 | typeVarint:
			m.TtlMs = r.int()
		case 4<<3 | typeVarint:
			m.RemainingMs = r.int()
		case 5<<3 | typeBytes:
			m.Name = r.text()
		case 6<<3 | typeBytes:
			m.Owner = r.text()
		case 8<<3 | typeVarint:
			m.LockDelayMs = r.int()
		case 9<<3 | typeVarint:
			m.AtExpiry = pb.AtExpiry(r.int())
		case 10<<3 | typeVarint:
			m.Delayed = r.flag()
		case 12<<3 | typeVarint:
			m.KeyCount = r.int()
		case 14<<3 | typeVarint:
			m.Bound = r.flag()
		case 15<<3 | typeBytes:
			m.Principal = r.text()
		default:
			r.odd = true
		}
	}
}

func (r *reader) watchResponse(m *pb.WatchResponse, room *pb.Header) {
	for outer := r.enter(); r.more(outer); {
		switch r.field() {
		case 1<<3 | typeBytes:
			r.header(&m.Header, room)
		case 2<<3 | typeBytes:
			m.Events = append(m.Events, r.event())
		case 3<<3 | typeVarint:
			m.Fragment = r.flag()
		default:
			r.odd = true
		}
	}
}

// change is an event with its pair.
type change struct {
	event pb.Event
	pair  pb.KeyValue
}

func (r *reader) event() *pb.Event {
	c := &change{}
	m := &c.event
	for outer := r.enter(); r.more(outer); {
		switch r.field() {
		case 1<<3 | typeVarint:
			m.Kind = pb.Event_Kind(r.int())
		case 2<<3 | typeBytes:
			if r.once(m.Kv == nil) {
				m.Kv = r.keyValue(&c.pair)
			}
		case 3<<3 | typeBytes:
			r.pair(&m.PrevKv)
		case 4<<3 | typeVarint:
			m.Why = pb.Event_Why(r.int())
		case 5<<3 | typeVarint:
			m.Lease = r.int()
		default:
			r.odd = true
		}
	}
	return m
}
