package bubble

import _ "unsafe" // for go:linkname

// etcdNever is a channel that etcd's client makes when the program begins, for contexts of watches
// that never end. It is of no bubble, so a goroutine that waits for it would not let time pass.
// None at all does the same.
//
//go:linkname etcdNever go.etcd.io/etcd/client/v3.valCtxCh
var etcdNever chan struct{}

func init() { etcdNever = nil }
