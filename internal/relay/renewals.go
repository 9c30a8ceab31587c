package relay

import (
	"google.golang.org/protobuf/encoding/protowire"

	"leasehold.dev/internal/channel"
)

const (
	// maxRenewed bounds the leases of a request that goes in columns, and maxMessage the bytes of its
	// message, which can have fields that say nothing: the relay keeps it until it is answered.
	maxRenewed = 64
	maxMessage = 2 << 10
	// leastTimeout is the shortest time, in milliseconds, that a client may give a request that goes
	// in columns, which have no place for it: a member waits that long in no case.
	leastTimeout = 10_000
)

// renew sends a message in columns, if it is a renewal and nothing else.
func (p *passage) renew(message []byte) bool {
	if !p.renews {
		return false
	}
	r, ok := parseRenewal(message)
	if !ok || !p.channel.Renew(message, r) {
		return false
	}
	p.renewals.Inc()
	return true
}

// The numbers of fields, in stream.proto and leases.proto.
const (
	fieldRequests = 1
	fieldID       = 1
	fieldTimeout  = 2
	fieldRenew    = 9
	fieldIDs      = 2
	fieldTokens   = 3
)

// parseRenewal returns what a message of StreamService.Open asks to renew. It reports false if the
// message says anything else: a field that is not known here may change what it means, so that the
// member is to read it. A large one is left to it, too.
func parseRenewal(message []byte) (r channel.Renewal, ok bool) {
	if len(message) > maxMessage {
		return r, false
	}
	requests := 0
	ok = eachField(message, func(n protowire.Number, _ uint64, request []byte) bool {
		requests++
		return n == fieldRequests && requests == 1 && parseRequest(request, &r)
	})
	if r.Tokens == nil {
		r.Tokens = make([]uint64, len(r.IDs))
	}
	return r, ok && len(r.IDs) > 0 && len(r.IDs) <= maxRenewed && len(r.Tokens) == len(r.IDs)
}

func parseRequest(request []byte, r *channel.Renewal) bool {
	return eachField(request, func(n protowire.Number, v uint64, b []byte) bool {
		switch {
		case n == fieldID && b == nil:
			r.Request = v
		case n == fieldTimeout && b == nil:
			return v == 0 || v >= leastTimeout
		case n == fieldRenew && b != nil && r.IDs == nil:
			return parseRenew(b, r)
		default:
			return false
		}
		return true
	})
}

func parseRenew(b []byte, r *channel.Renewal) bool {
	return eachField(b, func(n protowire.Number, _ uint64, column []byte) bool {
		if column == nil || len(column)%8 != 0 {
			return false
		}
		for len(column) > 0 {
			v, size := protowire.ConsumeFixed64(column)
			column = column[size:]
			switch n {
			case fieldIDs:
				r.IDs = append(r.IDs, int64(v))
			case fieldTokens:
				r.Tokens = append(r.Tokens, v)
			default:
				return false
			}
		}
		return true
	})
}

// eachField calls f with each field of a message, which has a number or bytes, until f reports
// false. It reports whether f never did, and the message has no other fields.
func eachField(b []byte, f func(n protowire.Number, v uint64, bytes []byte) bool) bool {
	for len(b) > 0 {
		n, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return false
		}
		b = b[size:]
		var v uint64
		var bytes []byte
		switch kind {
		case protowire.VarintType:
			v, size = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			if bytes, size = protowire.ConsumeBytes(b); bytes == nil {
				bytes = []byte{}
			}
		default:
			return false
		}
		if size < 0 || !f(n, v, bytes) {
			return false
		}
		b = b[size:]
	}
	return true
}
