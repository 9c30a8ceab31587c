package client

import (
	"context"
	"fmt"
	"time"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/lease"
)

// KV is a key as of some revision.
type KV struct {
	Key   string
	Value []byte
	// CreateRevision made the key, and ModRevision was the last one that changed it.
	CreateRevision, ModRevision int64
	// Version is how often the key was put since it was made.
	Version int64
	// Lease is that which the key is attached to, 0 for none.
	Lease lease.ID
}

// Put sets a key. It is an [Op].
type Put struct {
	Key string
	// Value must not be changed any more, not even when the put was given up: it is not
	// copied, and may be on its way.
	Value []byte
	// Lease is what to attach the key to, 0 for nothing.
	Lease lease.ID
	// LeaseRef is the same, but by the lease's name, or under its token; it is not given
	// together with Lease.
	LeaseRef LeaseRef
	// PrevKV asks for the key as it was before.
	PrevKV bool
	// KeepValue and KeepLease leave the one or the other as it is; the key must exist.
	KeepValue, KeepLease bool
	// TTL, if it is not 0, ends the key unless it is put again before: not before so much
	// time has passed since the call, rounded up to milliseconds. It is for keys that nobody
	// wants to handle a lease for, so not together with Lease or KeepLease. The key is on a
	// lease of its own, which KV.Lease tells and which goes when the key does.
	TTL time.Duration
}

// PutResult is what a Put did.
type PutResult struct {
	// Revision is that of the store, with the put.
	Revision int64
	// Prev is nil if it was not asked for, or if there was no such key.
	Prev *KV
}

// Delete deletes a key, or a range of them, in one revision. It is an [Op].
type Delete struct {
	Key string
	// End is the first key behind the range; empty for the one key. See [Prefix].
	End string
	// PrevKV asks for the keys as they were before.
	PrevKV bool
}

// DeleteResult is what a Delete did.
type DeleteResult struct {
	// Revision is that of the store, with the deletion.
	Revision int64
	// Deleted is how many keys there were.
	Deleted int64
	Prev    []KV
}

// Range reads a key, or a range of them. It is an [Op].
type Range struct {
	Key string
	// End is the first key behind the range; empty for the one key. See [Prefix].
	End string
	// Limit is the most keys to return, 0 for all.
	Limit int64
	// Revision is the one to read at, 0 for the newest.
	Revision int64
	// Serializable reads what the member has, which may be old, and older than what
	// another member told before.
	Serializable bool
	// KeysOnly leaves the values out, CountOnly the keys, too.
	KeysOnly, CountOnly bool
}

// RangeResult is what a Range found.
type RangeResult struct {
	// Revision is that of the store when it was read.
	Revision int64
	// KVs are in the order of their keys.
	KVs []KV
	// More says that there are more than the limit.
	More bool
	// Count is how many keys there are in the range.
	Count int64
}

// KeyRange is a key or a range of keys. Its methods make the requests for it, and the conditions
// of a transaction on it.
type KeyRange struct {
	Key string
	// End is the first key behind the range; empty for the one key. See [Prefix].
	End string
}

// Key is the range of one key.
func Key(key string) KeyRange { return KeyRange{Key: key} }

// Prefix is the range of all keys that begin with the prefix; of all keys, if it is empty.
func Prefix(prefix string) KeyRange {
	b := []byte(prefix)
	for i := len(b) - 1; i >= 0; i-- {
		if b[i] < 0xff {
			b[i]++
			return KeyRange{Key: prefix, End: string(b[:i+1])}
		}
	}
	if prefix == "" {
		prefix = "\x00" // no key is before it
	}
	return KeyRange{Key: prefix, End: "\x00"}
}

// Range reads the range: add to it what else is wanted.
func (r KeyRange) Range() Range { return Range{Key: r.Key, End: r.End} }

// Watch watches the range: add to it what else is wanted.
func (r KeyRange) Watch() Watch { return Watch{Key: r.Key, End: r.End} }

// Delete deletes the range.
func (r KeyRange) Delete() Delete { return Delete{Key: r.Key, End: r.End} }

// Put sets a key.
func (c *Client) Put(ctx context.Context, p Put) (PutResult, error) {
	a := &ask[pb.Request_Put, pb.PutRequest]{
		spec: spec{op: "put", on: p.Key, kind: numbered},
	}
	p.write(&a.message)
	a.body.Put, a.request.Body = &a.message, &a.body
	r, err := c.do(ctx, &a.spec, &a.request)
	return putResult(r.GetPut()), err
}

// Delete deletes a key or a range.
func (c *Client) Delete(ctx context.Context, d Delete) (DeleteResult, error) {
	a := &ask[pb.Request_DeleteRange, pb.DeleteRequest]{
		spec: spec{op: "delete", on: d.Key, kind: numbered},
	}
	d.write(&a.message)
	a.body.DeleteRange, a.request.Body = &a.message, &a.body
	r, err := c.do(ctx, &a.spec, &a.request)
	return deleteResult(r.GetDeleteRange()), err
}

// Range reads a key or a range, linearizably if not asked otherwise.
func (c *Client) Range(ctx context.Context, r Range) (RangeResult, error) {
	a := &ask[pb.Request_ReadRange, pb.RangeRequest]{
		spec: spec{op: "range", on: r.Key, kind: read},
	}
	r.write(&a.message)
	a.body.ReadRange, a.request.Body = &a.message, &a.body
	resp, err := c.do(ctx, &a.spec, &a.request)
	return rangeResult(resp.GetReadRange()), err
}

// Get reads one key, linearizably. It returns [ErrKeyNotFound] if there is none.
func (c *Client) Get(ctx context.Context, key string) (KV, error) {
	r, err := c.Range(ctx, Range{Key: key})
	switch {
	case err != nil:
		return KV{}, err
	case len(r.KVs) == 0:
		return KV{}, fmt.Errorf("client: get %q: %w", key, ErrKeyNotFound)
	default:
		return r.KVs[0], nil
	}
}

// write makes a new message that of the put.
func (p *Put) write(m *pb.PutRequest) {
	m.Key, m.Value, m.Lease, m.PrevKv = []byte(p.Key), p.Value, int64(p.Lease), p.PrevKV
	m.IgnoreValue, m.IgnoreLease, m.TtlMs = p.KeepValue, p.KeepLease, msUp(p.TTL)
	if p.LeaseRef != (LeaseRef{}) {
		m.LeaseRef = p.LeaseRef.message()
	}
}

// write makes a new message that of the deletion.
func (d *Delete) write(m *pb.DeleteRequest) {
	m.Key, m.RangeEnd = span(d.Key, d.End)
	m.PrevKv = d.PrevKV
}

func (r Range) message() *pb.RangeRequest {
	m := &pb.RangeRequest{}
	r.write(m)
	return m
}

// write makes a new message that of the range.
func (r *Range) write(m *pb.RangeRequest) {
	m.Key, m.RangeEnd = span(r.Key, r.End)
	m.Limit, m.Revision = r.Limit, r.Revision
	m.Serializable, m.KeysOnly, m.CountOnly = r.Serializable, r.KeysOnly, r.CountOnly
}

func putResult(m *pb.PutResponse) PutResult {
	return PutResult{Revision: m.GetHeader().GetRevision(), Prev: kvOf(m.GetPrevKv())}
}

func deleteResult(m *pb.DeleteResponse) DeleteResult {
	return DeleteResult{
		Revision: m.GetHeader().GetRevision(), Deleted: m.GetDeleted(), Prev: kvsOf(m.GetPrevKvs()),
	}
}

func rangeResult(m *pb.RangeResponse) RangeResult {
	return RangeResult{
		Revision: m.GetHeader().GetRevision(), KVs: kvsOf(m.GetKvs()), More: m.GetMore(),
		Count: m.GetCount(),
	}
}

// kvOf converts a pair, if there is one.
func kvOf(m *pb.KeyValue) *KV {
	if m == nil {
		return nil
	}
	return &KV{
		Key: string(m.Key), Value: m.Value, CreateRevision: m.CreateRevision,
		ModRevision: m.ModRevision, Version: m.Version, Lease: lease.ID(m.Lease),
	}
}

func kvsOf(list []*pb.KeyValue) []KV {
	if len(list) == 0 {
		return nil
	}
	out := make([]KV, len(list))
	for i, m := range list {
		out[i] = *kvOf(m)
	}
	return out
}
