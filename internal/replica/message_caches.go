package replica

import (
	"encoding/binary"

	"leasehold.dev/internal/encoding"
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/lease"
)

// NumberedAck is an AckCache in a Forward. The number tells the leader whether the acknowledgement
// was sent before a round.
type NumberedAck struct {
	Number uint64
	AckCache
}

// NumberedOpen is an OpenCache in a Forward.
type NumberedOpen struct {
	Number uint64
	ID     lease.ID
	Token  lease.Token
	Has    []keyrange.Range
}

// Opened is the outcome of the OpenCache with the same number.
type Opened struct {
	Number uint64
	Code   Code
}

func (f *Forward) aboutCaches() bool { return len(f.Acks)+len(f.Fills)+len(f.Opens) > 0 }

func (r *Reply) aboutCaches() bool {
	return len(r.Filled)+len(r.Opened)+len(r.Invalidations) > 0
}

func (f *Forward) appendCaches(b []byte) []byte {
	b = encoding.AppendList(b, f.Acks, func(b []byte, a NumberedAck) []byte {
		b = appendLease(binary.AppendUvarint(b, a.Number), a.ID, a.Token)
		for _, v := range [...]uint64{a.Term, a.Seq, a.Open} {
			b = binary.AppendUvarint(b, v)
		}
		return appendRanges(b, a.Dropped)
	})
	b = encoding.AppendList(b, f.Fills, func(b []byte, a Fill) []byte {
		return appendRanges(appendLease(b, a.ID, a.Token), a.Ranges)
	})
	return encoding.AppendList(b, f.Opens, func(b []byte, o NumberedOpen) []byte {
		b = appendLease(binary.AppendUvarint(b, o.Number), o.ID, o.Token)
		return appendRanges(b, o.Has)
	})
}

func (f *Forward) decodeCaches(d *encoding.Decoder) {
	f.Acks = encoding.List(d, func() NumberedAck {
		a := NumberedAck{Number: d.Uvarint()}
		a.ID, a.Token = decodeLease(d)
		a.Term, a.Seq, a.Open = d.Uvarint(), d.Uvarint(), d.Uvarint()
		a.Dropped = decodeRanges(d)
		return a
	})
	f.Fills = encoding.List(d, func() Fill {
		a := Fill{}
		a.ID, a.Token = decodeLease(d)
		a.Ranges = decodeRanges(d)
		return a
	})
	f.Opens = encoding.List(d, func() NumberedOpen {
		o := NumberedOpen{Number: d.Uvarint()}
		o.ID, o.Token = decodeLease(d)
		o.Has = decodeRanges(d)
		return o
	})
}

func (f *Forward) cachesSize() (size int) {
	for i := range f.Acks {
		size += 64 + rangesSize(f.Acks[i].Dropped)
	}
	for i := range f.Fills {
		size += 32 + rangesSize(f.Fills[i].Ranges)
	}
	for i := range f.Opens {
		size += 40 + rangesSize(f.Opens[i].Has)
	}
	return size
}

func (r *Reply) appendCaches(b []byte) []byte {
	b = encoding.AppendList(b, r.Filled, func(b []byte, ok bool) []byte {
		return append(b, encoding.Flag(ok, 1))
	})
	b = encoding.AppendList(b, r.Opened, func(b []byte, o Opened) []byte {
		return append(binary.AppendUvarint(b, o.Number), byte(o.Code))
	})
	return encoding.AppendList(b, r.Invalidations, func(b []byte, i Invalidation) []byte {
		b = appendLease(b, i.ID, i.Token)
		b = binary.AppendUvarint(binary.AppendUvarint(b, i.Term), i.Seq)
		return appendRanges(b, i.Drop)
	})
}

func (r *Reply) appendSlow(b []byte) []byte {
	return encoding.AppendList(b, r.Slow, func(b []byte, s SlowNotice) []byte {
		return binary.AppendVarint(appendLease(b, s.ID, s.Token), int64(s.Waited))
	})
}

func (r *Reply) decodeCaches(d *encoding.Decoder) {
	r.Filled = encoding.List(d, func() bool { return d.Bool("a fill's answer") })
	r.Opened = encoding.List(d, func() Opened {
		return Opened{Number: d.Uvarint(), Code: decodeCode(d)}
	})
	r.Invalidations = encoding.List(d, func() Invalidation {
		i := Invalidation{}
		i.ID, i.Token = decodeLease(d)
		i.Term, i.Seq = d.Uvarint(), d.Uvarint()
		i.Drop = decodeRanges(d)
		return i
	})
}

func (r *Reply) decodeSlow(d *encoding.Decoder) {
	r.Slow = encoding.List(d, func() SlowNotice {
		s := SlowNotice{}
		s.ID, s.Token = decodeLease(d)
		s.Waited = lease.TTL(d.Varint())
		return s
	})
}

func (r *Reply) cachesSize() int {
	size := len(r.Filled) + 16*len(r.Opened) + 32*len(r.Slow)
	for i := range r.Invalidations {
		size += 48 + rangesSize(r.Invalidations[i].Drop)
	}
	return size
}

func appendLease(b []byte, id lease.ID, token lease.Token) []byte {
	return binary.AppendUvarint(appendID(b, id), uint64(token))
}

func decodeLease(d *encoding.Decoder) (lease.ID, lease.Token) {
	return lease.ID(d.Uint64()), lease.Token(d.Uvarint())
}

func appendRanges(b []byte, ranges []keyrange.Range) []byte {
	return encoding.AppendList(b, ranges, func(b []byte, r keyrange.Range) []byte {
		return encoding.AppendBytes(encoding.AppendBytes(b, r.Key), r.End)
	})
}

func decodeRanges(d *encoding.Decoder) []keyrange.Range {
	return encoding.List(d, func() keyrange.Range {
		return keyrange.Range{Key: d.Text(), End: d.Text()}
	})
}

func rangesSize(ranges []keyrange.Range) (size int) {
	for _, r := range ranges {
		size += 8 + len(r.Key) + len(r.End)
	}
	return size
}
