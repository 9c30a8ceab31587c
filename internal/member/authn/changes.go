package authn

import "sync/atomic"

// Changes notifies open streams and waits that users or roles have changed, or that the user of a
// caller has changed.
type Changes struct{ next atomic.Pointer[chan struct{}] }

// NewChanges returns a Changes without an announcement.
func NewChanges() *Changes {
	c := new(Changes)
	c.next.Store(new(make(chan struct{})))
	return c
}

// Announce announces a change that is already visible in the view.
func (c *Changes) Announce() { close(*c.next.Swap(new(make(chan struct{})))) }

// AccessChanged implements api.Node: its channel is closed at the next change.
func (c *Changes) AccessChanged() <-chan struct{} { return *c.next.Load() }
