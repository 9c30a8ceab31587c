// Package store has what a program asks the cluster about keys, and what it is told: what to put,
// delete, read and watch, transactions with their conditions, and the results. The methods of a
// client.Client take and return these values:
//
//	c.Put(ctx, store.Put{Key: "nodes/a", Value: []byte("10.0.0.1")})
//	c.Range(ctx, store.Prefix("nodes/").Range())
//	c.Txn(ctx, store.Txn{
//		If:   []store.Compare{store.Key("primary").Missing()},
//		Then: []store.Op{store.Put{Key: "primary", Value: []byte("a"), Lease: id}},
//	})
//
// A value can be used any number of times, by any goroutine, as long as nobody changes it. The
// methods Fill, Message and Op make messages of leasehold.v1; package client calls them.
package store
