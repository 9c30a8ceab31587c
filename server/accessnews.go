package server

import "sync/atomic"

// accessNews tells open streams and waits that users or roles have changed, or that a caller is
// another user now.
type accessNews struct{ next atomic.Pointer[chan struct{}] }

func newAccessNews() *accessNews {
	n := new(accessNews)
	n.renew()
	return n
}

// renew makes the channel for the next change, and returns that for the last one.
func (n *accessNews) renew() *chan struct{} {
	c := make(chan struct{})
	return n.next.Swap(&c)
}

// tell says that there was a change, which everybody can see by now: the core calls it after it has
// published the view.
func (n *accessNews) tell() { close(*n.renew()) }

// AccessChanged implements api.Guarded.
func (n *node) AccessChanged() <-chan struct{} { return *n.accessNews.next.Load() }
