package fsm

import (
	"encoding/binary"
	"slices"

	"leasehold.dev/internal/encoding"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
)

// refusals lists the errors without data that a command in a Once can return. Their positions,
// counted from refusalPlain, are stored on disk: add new ones at the end.
var refusals = [...]error{
	ErrKeyNotFound, ErrSessionNotFound, ErrTxnTooLarge, lease.ErrNotFound,
	lease.ErrExists, lease.ErrBadID, lease.ErrBound, mvcc.ErrCompacted, mvcc.ErrFutureRevision,
	ErrBadHolds, ErrTooManyHolds, ErrOwnerHolds,
}

// These numbers are not positions in the list. They stand for success and for errors with data.
// refusalPlain is the number of the first error in the list.
const (
	refusalNone byte = iota
	refusalName
	refusalKeys
	refusalTTL
	refusalCacheTTL
	refusalUnnamed

	refusalPlain byte = 32
)

// storable reports whether an error can be encoded in a snapshot.
func storable(err error) bool {
	switch err.(type) { //nolint:errorlint // apply wraps none
	case nil, *lease.NameError, *lease.KeyLimitError, *lease.TTLError, *CacheTTLError,
		*UnnamedError:
		return true
	default:
		return slices.Contains(refusals[:], err)
	}
}

func appendRefusal(b []byte, err error) []byte {
	switch err := err.(type) { //nolint:errorlint // apply wraps none
	case nil:
		return append(b, refusalNone)
	case *lease.NameError:
		return appendInfo(encoding.AppendBytes(append(b, refusalName), err.Name), &err.Holder)
	case *lease.KeyLimitError:
		b = appendID(append(b, refusalKeys), err.ID)
		return binary.AppendVarint(b, int64(err.Limit))
	case *lease.TTLError:
		b = append(b, refusalTTL)
		for _, ttl := range [...]lease.TTL{err.Got, err.Min, err.Max} {
			b = binary.AppendVarint(b, int64(ttl))
		}
		return b
	case *CacheTTLError:
		b = binary.AppendVarint(append(b, refusalCacheTTL), int64(err.Got))
		return binary.AppendVarint(b, int64(err.Max))
	case *UnnamedError:
		return appendID(encoding.AppendBytes(append(b, refusalUnnamed), err.Name), err.ID)
	default:
		return append(b, refusalPlain+byte(slices.Index(refusals[:], err)))
	}
}

func (d *decoder) refusal() error {
	switch k := d.Byte(); {
	case k == refusalNone:
		return nil
	case k == refusalName:
		return &lease.NameError{Name: d.Text(), Holder: d.info()}
	case k == refusalKeys:
		return &lease.KeyLimitError{ID: d.id(), Limit: d.limit()}
	case k == refusalTTL:
		return &lease.TTLError{
			Got: lease.TTL(d.Varint()), Min: lease.TTL(d.Varint()), Max: lease.TTL(d.Varint()),
		}
	case k == refusalCacheTTL:
		return &CacheTTLError{Got: lease.TTL(d.Varint()), Max: lease.TTL(d.Varint())}
	case k == refusalUnnamed:
		return &UnnamedError{Name: d.Text(), ID: d.id()}
	case k >= refusalPlain && int(k-refusalPlain) < len(refusals):
		return refusals[k-refusalPlain]
	default:
		d.Unknown("refusal kind", uint64(k))
		return nil
	}
}

func appendResult(b []byte, r *Result) []byte {
	b = binary.AppendVarint(b, r.Revision)
	if b = appendRefusal(b, r.Err); r.Err != nil {
		return b
	}
	return appendValue(b, r.Value)
}

func (d *decoder) result() Result {
	r := Result{Revision: d.Varint(), Err: d.refusal()}
	if r.Err == nil {
		r.Value = d.value(0)
	}
	return r
}

// Tags for result values. They are stored on disk: add new ones at the end.
const (
	valuePut byte = iota + 1
	valueDelete
	valueTxn
	valueRange
	valueLease
	valueRevoke
	valueExisting
	valueToken
)

// Flags for results: a put replaced a pair, a transaction succeeded, or a range has more keys.
const (
	putHasPrev   byte = 1
	txnSucceeded byte = 1
	rangeMore    byte = 1
)

// appendValue appends the value of a result, or one response of a transaction.
func appendValue(b []byte, v any) []byte {
	switch v := v.(type) {
	case *PutResult:
		b = append(b, valuePut, encoding.Flag(v.Prev != nil, putHasPrev))
		if v.Prev == nil {
			return b
		}
		return appendKV(b, v.Prev)
	case *DeleteResult:
		b = binary.AppendVarint(append(b, valueDelete), v.Deleted)
		return encoding.AppendList(b, v.Prev, appendKV)
	case *TxnResult:
		b = append(b, valueTxn, encoding.Flag(v.Succeeded, txnSucceeded))
		return encoding.AppendList(b, v.Responses, appendValue)
	case *mvcc.RangeResult:
		b = append(b, valueRange, encoding.Flag(v.More, rangeMore))
		b = binary.AppendVarint(binary.AppendVarint(b, v.Count), v.Revision)
		return encoding.AppendList(b, v.KVs, appendKV)
	case *lease.Info:
		return appendInfo(append(b, valueLease), v)
	case *Existing:
		return appendInfo(append(b, valueExisting), &v.Info)
	case *RevokeResult:
		return binary.AppendVarint(append(b, valueRevoke), v.Deleted)
	case lease.Token:
		return binary.AppendUvarint(append(b, valueToken), uint64(v))
	default:
		panic("fsm: cannot encode a result of unknown type")
	}
}

func (d *decoder) value(depth int) any {
	switch k := d.Byte(); k {
	case valuePut:
		r := &PutResult{}
		if d.Flags("a put's result", putHasPrev) != 0 {
			r.Prev = d.kv()
		}
		return r
	case valueDelete:
		return &DeleteResult{Deleted: d.Varint(), Prev: encoding.List(&d.Decoder, d.kv)}
	case valueTxn:
		if depth > maxTxnDepth {
			d.Fail("a result that is nested too deeply")
			return nil
		}
		one := func() any { return d.value(depth + 1) }
		return &TxnResult{
			Succeeded: d.Flags("a transaction's result", txnSucceeded) != 0,
			Responses: encoding.List(&d.Decoder, one),
		}
	case valueRange:
		return &mvcc.RangeResult{
			More: d.Flags("a range's result", rangeMore) != 0, Count: d.Varint(),
			Revision: d.Varint(), KVs: encoding.List(&d.Decoder, d.kv),
		}
	case valueLease:
		info := d.info()
		return &info
	case valueExisting:
		return &Existing{d.info()}
	case valueRevoke:
		return &RevokeResult{Deleted: d.Varint()}
	case valueToken:
		return lease.Token(d.Uvarint())
	default:
		d.Unknown("result kind", uint64(k))
		return nil
	}
}

// appendSession appends a session without its stored results. Each result is a separate record,
// because together they can be large.
func appendSession(b []byte, s *session) []byte {
	b = binary.AppendUvarint(b, s.ID)
	b = binary.BigEndian.AppendUint64(b, s.Nonce)
	return binary.AppendUvarint(b, s.settled)
}

func (d *decoder) session() *session {
	return &session{Session: Session{ID: d.Uvarint(), Nonce: d.Uint64()}, settled: d.Uvarint()}
}

func appendAnswer(b []byte, a *answer) []byte {
	return appendResult(binary.AppendUvarint(b, a.number), &a.result)
}

func (d *decoder) answer() answer {
	a := answer{number: d.Uvarint(), result: d.result()}
	a.size = resultSize(&a.result)
	return a
}
