package relay

import (
	"google.golang.org/protobuf/encoding/protowire"

	"leasehold.dev/lease"
)

// leastTimeout is the minimum client timeout, in milliseconds, of a renewal that the relay answers.
// A member never waits that long.
const leastTimeout = 10_000

// Field numbers in stream.proto and leases.proto.
const (
	fieldRequests = 1
	fieldID       = 1
	fieldTimeout  = 2
	fieldRenew    = 9
	fieldIDs      = 2
	fieldTokens   = 3
	fieldJoin     = 4
)

// renewal is a client's request to renew leases. A token of 0 matches any token of the lease.
type renewal struct {
	request uint64
	ids     []lease.ID
	tokens  []lease.Token
}

// parseRenewal decodes a message of StreamService.Open that only renews leases. It returns false
// for any other message. An unknown field may change the meaning of a message, so such messages are
// left to the member.
func parseRenewal(message []byte) (r renewal, ok bool) {
	requests := 0
	ok = eachField(message, func(n protowire.Number, _ uint64, request []byte) bool {
		requests++
		return n == fieldRequests && requests == 1 && parseRequest(request, &r)
	})
	if r.tokens == nil {
		r.tokens = make([]lease.Token, len(r.ids))
	}
	return r, ok && len(r.ids) > 0 && len(r.tokens) == len(r.ids)
}

func parseRequest(request []byte, r *renewal) bool {
	return eachField(request, func(n protowire.Number, v uint64, b []byte) bool {
		switch {
		case n == fieldID && b == nil:
			r.request = v
		case n == fieldTimeout && b == nil:
			return v == 0 || v >= leastTimeout
		case n == fieldRenew && b != nil && r.ids == nil:
			return parseRenew(b, r)
		default:
			return false
		}
		return true
	})
}

func parseRenew(b []byte, r *renewal) bool {
	return eachField(b, func(n protowire.Number, _ uint64, column []byte) bool {
		if column == nil {
			return n == fieldJoin // the relay manages the groups itself
		}
		if len(column)%8 != 0 {
			return false
		}
		for len(column) > 0 {
			v, size := protowire.ConsumeFixed64(column)
			column = column[size:]
			switch n {
			case fieldIDs:
				r.ids = append(r.ids, lease.ID(v))
			case fieldTokens:
				r.tokens = append(r.tokens, lease.Token(v))
			default:
				return false
			}
		}
		return true
	})
}

// eachField calls f with each field of a message until f returns false. Every field must be a
// varint or bytes. eachField returns false if f does, or if the message contains a field of another
// type.
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
