package main

import (
	"leasehold.dev/client"
	"leasehold.dev/client/leases"
	"leasehold.dev/client/lock"
	"leasehold.dev/client/store"
)

// The functions below convert results to JSON values that use the suite's names.

func plainKV(kv *store.KV) any {
	if kv == nil {
		return nil
	}
	return object{
		"key": kv.Key, "value": string(kv.Value), "create": kv.CreateRevision,
		"mod": kv.ModRevision, "version": kv.Version, "lease": kv.Lease,
	}
}

func plainKVs(list []store.KV) []any {
	out := []any{}
	for i := range list {
		out = append(out, plainKV(&list[i]))
	}
	return out
}

func plainRange(r *store.RangeResult) object {
	return object{"revision": r.Revision, "kvs": plainKVs(r.KVs), "count": r.Count, "more": r.More}
}

func plainDelete(r *store.DeleteResult) object {
	return object{"revision": r.Revision, "deleted": r.Deleted, "prev": plainKVs(r.Prev)}
}

func plainTxn(r *client.TxnResult) object {
	results := []any{}
	for i := range r.Results {
		results = append(results, plainResult(&r.Results[i]))
	}
	return object{"revision": r.Revision, "succeeded": r.Succeeded, "results": results}
}

func plainResult(x *client.Result) any {
	switch {
	case x.Put != nil:
		return object{"revision": x.Put.Revision, "prev": plainKV(x.Put.Prev)}
	case x.Delete != nil:
		return plainDelete(x.Delete)
	case x.Range != nil:
		return plainRange(x.Range)
	case x.Txn != nil:
		return plainTxn(x.Txn)
	case x.Grant != nil:
		return plainLease(&x.Grant.Info)
	case x.Renew != nil:
		return plainLease(x.Renew)
	case x.Token != 0:
		return x.Token
	default:
		return x.Revoked
	}
}

func plainLease(i *leases.Info) object {
	keys := []any{}
	for _, k := range i.Keys {
		keys = append(keys, k)
	}
	return object{
		"lease": i.ID, "token": i.Token, "ttl_ms": i.TTL.Milliseconds(),
		"remaining_ms": i.Remaining.Milliseconds(), "name": i.Name, "owner": i.Owner,
		"labels": i.Labels, "delayed": i.Delayed, "keys": keys,
	}
}

func plainUpdate(u store.Update) object {
	events := []any{}
	for i := range u.Events {
		e := &u.Events[i]
		kind, cause := "put", ""
		if e.Delete {
			kind, cause = "delete", e.Cause.String()
		}
		events = append(events, object{
			"kind": kind, "kv": plainKV(&e.KV), "prev": plainKV(e.Prev), "cause": cause, "lease": e.Lease,
		})
	}
	return object{"revision": u.Revision, "events": events}
}

func plainLeader(l lock.LeaderInfo) any {
	if l.None() {
		return nil
	}
	return object{"key": l.Key, "value": string(l.Value), "lease": l.Lease, "since": l.Since}
}
