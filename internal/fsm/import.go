package fsm

import (
	"encoding/binary"
	"iter"

	"leasehold.dev/internal/mvcc"
	"leasehold.dev/internal/version"
	"leasehold.dev/lease"
)

// An Import is the contents of another kind of store, from which a cluster can be restored.
type Import struct {
	// Revision is the store's revision. History up to this revision is treated as compacted.
	Revision int64
	// Leases are granted in this order. Each gets its full TTL.
	Leases iter.Seq[lease.Terms]
	// Keys yields the newest versions of the existing keys, ordered by revision.
	Keys iter.Seq[mvcc.Record]
}

// Encode writes the contents as the chunks of a snapshot for [RestoreBackup]. The chunk buffer is
// reused after write returns.
func (im *Import) Encode(write func(chunk []byte) error) error {
	e := &encoder{write: write}
	var leases []lease.Terms
	for t := range im.Leases {
		leases = append(leases, t)
	}
	e.record(tagHeader, func(b []byte) []byte {
		return appendHeader(b, &header{
			Version: ClusterVersion{Number: version.Spoken.Newest},
			Index:   1, Term: 1, // a snapshot covers at least one entry
			Revision: im.Revision, Compacted: im.Revision, LastToken: lease.Token(len(leases)),
		})
	})
	for i, t := range leases {
		info := lease.Info{Terms: t, Token: lease.Token(i + 1)}
		e.record(tagLease, func(b []byte) []byte { return appendInfo(b, &info) })
	}
	for r := range im.Keys {
		e.record(tagRecord, func(b []byte) []byte { return appendRecord(b, &r, &e.names) })
	}
	total := e.records
	e.record(tagTrailer, func(b []byte) []byte { return binary.AppendUvarint(b, total) })
	return e.flush()
}
