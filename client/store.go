package client

import (
	"context"
	"fmt"

	pb "leasehold.dev/api/leasehold/v1"
	"leasehold.dev/client/store"
	"leasehold.dev/lease"
)

// Put sets a key.
func (c *Client) Put(ctx context.Context, p store.Put) (store.PutResult, error) {
	a := &ask[pb.Request_Put, pb.PutRequest]{
		spec: spec{op: "put", on: p.Key, kind: numbered},
	}
	fillPut(&a.message, &p)
	a.body.Put, a.request.Body = &a.message, &a.body
	r, err := c.do(ctx, &a.spec, &a.request)
	return putResult(r.GetPut()), err
}

// Delete deletes a key or a range.
func (c *Client) Delete(ctx context.Context, d store.Delete) (store.DeleteResult, error) {
	a := &ask[pb.Request_DeleteRange, pb.DeleteRequest]{
		spec: spec{op: "delete", on: d.Key, kind: numbered},
	}
	fillDelete(&a.message, &d)
	a.body.DeleteRange, a.request.Body = &a.message, &a.body
	r, err := c.do(ctx, &a.spec, &a.request)
	return deleteResult(r.GetDeleteRange()), err
}

// Range reads a key or a range, linearizably unless r.Serializable is set.
func (c *Client) Range(ctx context.Context, r store.Range) (store.RangeResult, error) {
	a := &ask[pb.Request_ReadRange, pb.RangeRequest]{
		spec: spec{op: "range", on: r.Key, kind: read},
	}
	fillRange(&a.message, &r)
	a.body.ReadRange, a.request.Body = &a.message, &a.body
	resp, err := c.do(ctx, &a.spec, &a.request)
	return rangeResult(resp.GetReadRange()), err
}

// Get reads one key linearizably. It returns [ErrKeyNotFound] if the key does not exist.
func (c *Client) Get(ctx context.Context, key string) (store.KV, error) {
	r, err := c.Range(ctx, store.Range{Key: key})
	switch {
	case err != nil:
		return store.KV{}, err
	case len(r.KVs) == 0:
		return store.KV{}, fmt.Errorf("client: get %q: %w", key, ErrKeyNotFound)
	default:
		return r.KVs[0], nil
	}
}

func putResult(m *pb.PutResponse) store.PutResult {
	return store.PutResult{Revision: m.GetHeader().GetRevision(), Prev: kvOf(m.GetPrevKv())}
}

func deleteResult(m *pb.DeleteResponse) store.DeleteResult {
	return store.DeleteResult{
		Revision: m.GetHeader().GetRevision(), Deleted: m.GetDeleted(), Prev: kvsOf(m.GetPrevKvs()),
	}
}

func rangeResult(m *pb.RangeResponse) store.RangeResult {
	return store.RangeResult{
		Revision: m.GetHeader().GetRevision(), KVs: kvsOf(m.GetKvs()), More: m.GetMore(),
		Count: m.GetCount(),
	}
}

// kvOf converts a pair; nil becomes nil.
func kvOf(m *pb.KeyValue) *store.KV {
	if m == nil {
		return nil
	}
	return &store.KV{
		Key: string(m.Key), Value: m.Value, CreateRevision: m.CreateRevision,
		ModRevision: m.ModRevision, Version: m.Version, Lease: lease.ID(m.Lease),
	}
}

func kvsOf(list []*pb.KeyValue) []store.KV {
	if len(list) == 0 {
		return nil
	}
	out := make([]store.KV, len(list))
	for i, m := range list {
		out[i] = *kvOf(m)
	}
	return out
}
