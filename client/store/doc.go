// Package store contains the requests that operate on keys, and their results: put, delete, read,
// watch, and transactions with conditions. The methods of client.Client take and return these
// values:
//
//	c.Put(ctx, store.Put{Key: "nodes/a", Value: []byte("10.0.0.1")})
//	c.Range(ctx, store.Prefix("nodes/").Range())
//	c.Txn(ctx, store.Txn{
//		If:   []store.Compare{store.Key("primary").Missing()},
//		Then: []store.Op{store.Put{Key: "primary", Value: []byte("a"), Lease: id}},
//	})
//
// A value can be used any number of times, from any goroutine, as long as it is not modified.
package store
