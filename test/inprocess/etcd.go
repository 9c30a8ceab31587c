package inprocess

import _ "unsafe" // for go:linkname

// etcdNever is a channel of etcd's client for the contexts of watches, which never end. The client
// makes it before any bubble exists, so a goroutine that waits for it would stop virtual time. A
// nil channel does the same.
//
//go:linkname etcdNever go.etcd.io/etcd/client/v3.valCtxCh
var etcdNever chan struct{}

func init() { etcdNever = nil }
