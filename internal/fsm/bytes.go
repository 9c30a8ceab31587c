package fsm

import (
	"leasehold.dev/internal/keyrange"
	"leasehold.dev/internal/mvcc"
	"leasehold.dev/lease"
)

// Bytes is about how much memory the state takes. It is a function of the state: members that
// have applied the same entries have the same, whatever each has cleaned up, and so does one
// that has restored a snapshot.
type Bytes struct {
	// Keys is what keys take with their history, but for what a compaction has made
	// superfluous.
	Keys int64
	// Leases is what leases take with what they have, keep for themselves and hold, and
	// with orphans.
	Leases int64
	// Sessions is what sessions and their answers take, Members what members and alarms do, and
	// Access what users and roles do.
	Sessions, Members, Access int64
}

// Sum returns what all of it takes: what the quota is for.
func (b Bytes) Sum() int64 { return b.Keys + b.Leases + b.Sessions + b.Members + b.Access }

// These are about what things take in memory besides their texts: a lease or an orphan that
// holds ranges, and each of those, in the leader's directory too; a session, and an answer of
// one; a pair, a lease and an operation in an answer; a member, its URLs, and what is remembered
// of one that was removed, or of an alarm.
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

// clusterBytes returns what the members take.
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

// textBytes is how long the keys and the ends of ranges are.
func textBytes(ranges []keyrange.Range) (sum int64) {
	for _, r := range ranges {
		sum += int64(len(r.Key) + len(r.End))
	}
	return sum
}

// holdSize is what it takes that a lease holds ranges. The lease counts once more from the
// beginning, so that the state does not grow when it ends and leaves an orphan.
func holdSize(l *lease.Terms, ranges []keyrange.Range) int64 {
	if len(ranges) == 0 {
		return 0
	}
	return l.Bytes() + holdBytes + int64(len(ranges))*rangeBytes + textBytes(ranges)
}

// resultSize returns about how many bytes a result takes that a session keeps. It is the same
// for a result that was decoded.
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
