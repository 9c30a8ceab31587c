package authn

import "sync/atomic"

// Changes announces to open streams and waits that users or roles have changed, or that a caller is
// another user now.
type Changes struct{ next atomic.Pointer[chan struct{}] }

// NewChanges returns Changes of which none was announced.
func NewChanges() *Changes {
	c := new(Changes)
	c.next.Store(new(make(chan struct{})))
	return c
}

// Announce announces a change, which is visible in the view by now.
func (c *Changes) Announce() { close(*c.next.Swap(new(make(chan struct{})))) }

// AccessChanged implements api.Guarded: its channel is closed at the next change.
func (c *Changes) AccessChanged() <-chan struct{} { return *c.next.Load() }
