package replica

import (
	"encoding/binary"
	"math"

	"leasehold.dev/internal/encoding"
	"leasehold.dev/lease"
)

// AskAll are renewals in a Forward that arrived together, as parallel slices. The first has the
// number First, and the others follow.
type AskAll struct {
	First  uint64
	IDs    []lease.ID
	Tokens []lease.Token // nil, or one for each; see [Renewals]
}

// RenewedAll is the outcome of the renewals of an AskAll that were promised together. The others
// have a TTL of 0 here, and each gets a Renewed with its number.
type RenewedAll struct {
	First uint64
	TTLs  []lease.TTL
}

// renewals returns the request of a member for the leader.
func (a *AskAll) renewals(from uint64) *Renewals {
	return &Renewals{
		IDs: a.IDs, Tokens: a.Tokens, TTLs: make([]lease.TTL, len(a.IDs)),
		from: from, first: a.First,
	}
}

// batchTokens flags an AskAll with tokens.
const batchTokens byte = 1

func (f *Forward) appendBatches(b []byte) []byte {
	return encoding.AppendList(b, f.Batches, func(b []byte, a AskAll) []byte {
		b = binary.AppendUvarint(binary.AppendUvarint(b, a.First), uint64(len(a.IDs)))
		for _, id := range a.IDs {
			b = appendID(b, id)
		}
		b = append(b, encoding.Flag(a.Tokens != nil, batchTokens))
		for _, token := range a.Tokens {
			b = binary.AppendUvarint(b, uint64(token))
		}
		return b
	})
}

func (f *Forward) decodeBatches(d *encoding.Decoder) {
	f.Batches = encoding.List(d, func() AskAll {
		first, n := decodeNumbers(d)
		if n > d.Len()/8 {
			d.Fail("count")
			return AskAll{}
		}
		a := AskAll{First: first, IDs: make([]lease.ID, n)}
		for i := range a.IDs {
			a.IDs[i] = lease.ID(d.Uint64())
		}
		switch tokens := d.Flags("a batch", batchTokens) != 0; {
		case tokens && n > d.Len():
			d.Fail("count")
		case tokens:
			a.Tokens = make([]lease.Token, n)
		}
		for i := range a.Tokens {
			a.Tokens[i] = lease.Token(d.Uvarint())
		}
		return a
	})
}

// decodeNumbers decodes the number of a batch's first renewal and their count, which is positive
// and bounded by the range of numbers and the bytes left.
func decodeNumbers(d *encoding.Decoder) (first uint64, n int) {
	first, n = d.Uvarint(), d.Count()
	if n == 0 || first > math.MaxUint64-uint64(n) {
		d.Fail("numbers of a batch")
		return 0, 0
	}
	return first, n
}

func (f *Forward) batchesSize() (size int) {
	for i := range f.Batches {
		size += 32 + 8*len(f.Batches[i].IDs) + binary.MaxVarintLen64*len(f.Batches[i].Tokens)
	}
	return size
}

func (r *Reply) appendBatches(b []byte) []byte {
	return encoding.AppendList(b, r.Batches, func(b []byte, a RenewedAll) []byte {
		b = binary.AppendUvarint(binary.AppendUvarint(b, a.First), uint64(len(a.TTLs)))
		for _, ttl := range a.TTLs {
			b = binary.AppendUvarint(b, uint64(ttl))
		}
		return b
	})
}

func (r *Reply) decodeBatches(d *encoding.Decoder) {
	r.Batches = encoding.List(d, func() RenewedAll {
		first, n := decodeNumbers(d)
		a := RenewedAll{First: first, TTLs: make([]lease.TTL, n)}
		for i := range a.TTLs {
			ttl := d.Uvarint()
			if ttl > math.MaxInt64 {
				d.Fail("TTL")
			}
			a.TTLs[i] = lease.TTL(ttl)
		}
		return a
	})
}

func (r *Reply) batchesSize() (size int) {
	for i := range r.Batches {
		size += 32 + 9*len(r.Batches[i].TTLs)
	}
	return size
}
