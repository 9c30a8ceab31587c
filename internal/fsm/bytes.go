package fsm

import (
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
)

// Bytes is the approximate memory used by the state. It depends only on the state. It is therefore
// the same on all members that applied the same entries or restored a snapshot of them, no matter
// how much cleanup each has done.
type Bytes struct {
	// Keys is the size of keys and their history, excluding compacted revisions.
	Keys int64
	// Leases is the size of leases with their keys and holds, of keys kept after their lease ended,
	// and of orphans.
	Leases int64
	// Sessions is the size of sessions and their stored results. Members is the size of members and
	// alarms. Access is the size of users and roles.
	Sessions, Members, Access int64
}

// Sum returns the total, which is bounded by the quota.
func (b Bytes) Sum() int64 { return b.Keys + b.Leases + b.Sessions + b.Members + b.Access }

// These are approximate sizes in memory, excluding text. In order, they are for: a lease or orphan
// that holds ranges; each of those ranges, including the leader's directory; a session; one of its
// stored results; a key-value pair in such a result; an operation in it; a member; one of its URLs;
// and the record of a removed member or an alarm.
const (
	holdBytes     = 160
	rangeBytes    = 240
	sessionBytes  = 240
	answerBytes   = 256
	pairBytes     = 128
	responseBytes = 96
	memberBytes   = 256
	urlBytes      = 48
	removedBytes  = 48
)

func (m *Machine) bytes() Bytes {
	return Bytes{
		Keys:     m.store.Size(),
		Leases:   m.lessor.Bytes() + m.holds.bytes,
		Sessions: m.sessions.bytes + int64(len(m.sessions.byID))*sessionBytes,
		Members:  m.meta.bytes,
		Access:   m.meta.access.Bytes(),
	}
}

// clusterBytes returns the size of the members.
func (m *Machine) clusterBytes() int64 {
	size := int64(len(m.removed)+len(m.alarms)) * removedBytes
	for _, n := range m.members {
		size += memberBytes + int64(len(n.Name)+len(n.TokenKey))
		for _, urls := range [...][]string{n.PeerURLs, n.ClientURLs} {
			for _, u := range urls {
				size += urlBytes + int64(len(u))
			}
		}
	}
	return size
}

// textBytes returns the total length of the start and end keys of ranges.
func textBytes(ranges []keyrange.Range) (sum int64) {
	for _, r := range ranges {
		sum += int64(len(r.Key) + len(r.End))
	}
	return sum
}

// holdSize returns the size of the ranges that a lease holds. It counts the lease itself a second
// time, because the lease may leave an orphan when it ends. This way, the state does not grow at
// that point.
func holdSize(l *lease.Terms, ranges []keyrange.Range) int64 {
	if len(ranges) == 0 {
		return 0
	}
	return l.Bytes() + holdBytes + int64(len(ranges))*rangeBytes + textBytes(ranges)
}

// resultSize returns the approximate size of a result stored by a session. The size is the same
// after encoding and decoding.
func resultSize(r *Result) int64 {
	switch err := r.Err.(type) { //nolint:errorlint // apply wraps none
	case nil:
		return answerBytes + valueSize(r.Value)
	case *lease.NameError:
		return answerBytes + int64(len(err.Name)) + err.Holder.Bytes()
	case *UnnamedError:
		return answerBytes + int64(len(err.Name))
	default:
		return answerBytes
	}
}

func valueSize(v any) (size int64) {
	switch v := v.(type) {
	case *PutResult:
		if v.Prev != nil {
			return pairSize(v.Prev)
		}
	case *DeleteResult:
		return pairsSize(v.Prev)
	case *mvcc.RangeResult:
		return responseBytes + pairsSize(v.KVs)
	case *lease.Info:
		return v.Bytes()
	case *Existing:
		return v.Info.Bytes()
	case *TxnResult:
		for _, r := range v.Responses {
			size += responseBytes + valueSize(r)
		}
	}
	return size
}

func pairsSize(kvs []*mvcc.KeyValue) (size int64) {
	for _, kv := range kvs {
		size += pairSize(kv)
	}
	return size
}

func pairSize(kv *mvcc.KeyValue) int64 { return pairBytes + int64(len(kv.Key)+len(kv.Value)) }
